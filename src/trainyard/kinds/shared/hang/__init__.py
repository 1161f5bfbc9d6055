"""Hangs: the fields that ask for observation, and how the observer comes into pods."""
