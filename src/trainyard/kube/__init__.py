"""A thin Kubernetes API client: requests, errors, authentication, reflector. Knows no jobs."""
