"""Jobs of each kind under faults, beside bare torchrun and torchx: `make chaos`."""
