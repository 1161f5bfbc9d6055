"""Launches over ssh: their start, and how long it may take."""
