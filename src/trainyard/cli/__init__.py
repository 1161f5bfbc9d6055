"""The command line: one file per command. Decides nothing about jobs."""

import gc

# Decision 186.
gc.set_threshold(100_000)
