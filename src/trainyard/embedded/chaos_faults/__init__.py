"""Faults that are done to pods of an embedded cluster, by signals and in the kernel's networks."""
