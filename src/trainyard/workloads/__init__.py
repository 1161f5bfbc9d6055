"""What each kind turns into: pods, services, secrets, environment, commands; one file per kind.

Pure: no awaiting, no I/O, no clock.
"""
