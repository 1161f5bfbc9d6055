"""Logs, commands, ports and eviction of pods, with the protocols of their streams."""
