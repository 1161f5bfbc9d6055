"""The controller against a modelled cluster, in virtual time, under seeded faults."""
