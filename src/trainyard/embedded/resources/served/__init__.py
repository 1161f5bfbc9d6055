"""The resources: every file with a `SERVED` or a function `served` is one, or several."""
