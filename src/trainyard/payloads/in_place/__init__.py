"""Restart in place: what keeps a pod alive between two attempts of its command."""
