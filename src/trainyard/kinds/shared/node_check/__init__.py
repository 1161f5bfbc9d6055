"""Node check: its fields, and how the check comes into pods."""
