"""This machine and its files: users, interpreters, the state folder, who owns what.

Knows neither Kubernetes nor jobs, and imports nothing slow unless a function needs it.
"""
