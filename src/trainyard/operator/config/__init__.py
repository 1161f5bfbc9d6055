"""The operator's settings: from flags, environment variables and a file."""
