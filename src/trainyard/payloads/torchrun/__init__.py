"""What runs in the place of torchrun, and what it changes in torch."""
