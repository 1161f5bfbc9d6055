"""A job under a schedule of faults, beside the same job without: `trainyard chaos`."""
