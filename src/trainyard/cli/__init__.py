"""The command line: one file per command. Decides nothing about jobs."""
