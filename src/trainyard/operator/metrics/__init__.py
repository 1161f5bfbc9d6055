"""What an operator counts, and how it serves that."""
