"""How far the training is."""
