"""`plan()`: every decision about a job's life, one policy per file.

Pure: no awaiting, no I/O, no clock.
"""
