"""The command line: parses arguments, calls the API or the composition, prints.

The commands are in `commands`, one file each; everything else here is shared by them.
"""

import gc

# Imports make objects that stay: collecting while they are made only takes time (decision 186).
gc.set_threshold(100_000)
