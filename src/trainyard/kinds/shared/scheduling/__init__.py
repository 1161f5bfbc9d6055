"""Gangs, Kueue, and what PodGroup and Queue share."""
