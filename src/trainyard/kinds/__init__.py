"""One folder a kind, and `shared/`, what they have in common.

Pure: no awaiting, no I/O, no clock.
"""
