"""What the kinds have in common."""
