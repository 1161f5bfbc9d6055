"""The commands, one file each; `cli/main.py` has their table."""
