"""One container: what it is started with, limits, devices, probes, and commands in it."""
