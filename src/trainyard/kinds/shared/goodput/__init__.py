"""Goodput: what a job's wall time is spent on."""
