"""A thin Kubernetes client on plain dicts. It must not know what a job is."""
