"""One file a resource of the embedded API server."""
