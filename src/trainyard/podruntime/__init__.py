"""Pods by system calls: a program of its own, which imports the standard library alone."""
