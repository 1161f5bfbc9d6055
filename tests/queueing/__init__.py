"""Schedulers that jobs are handed to, as their makers publish them and say that they behave."""
