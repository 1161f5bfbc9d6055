"""The faults that `trainyard chaos` injects: full disks, cut networks, signals to processes."""
