"""A thin Kubernetes client on plain dicts: requests, watches, credentials. Knows no job."""
