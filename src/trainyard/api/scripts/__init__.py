"""A script, from what its user said of it to the manifest that runs it."""
