"""Pods and the objects beside them: creation, deletion, clean-up."""
