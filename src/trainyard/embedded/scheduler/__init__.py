"""Decides which pods may run on this machine now, and says why the others may not."""
