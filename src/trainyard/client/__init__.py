"""A job as users see it: find, follow, show. Must not know where a cluster comes from."""
