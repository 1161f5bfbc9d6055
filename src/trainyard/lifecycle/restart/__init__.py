"""Restarts: which failures lead to one, of which replicas, and when."""
