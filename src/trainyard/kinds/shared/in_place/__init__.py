"""In-place restart: how the supervisor comes into pods."""
