"""In-place restarts: the next attempt starts in pods that are there."""
