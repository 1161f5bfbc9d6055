"""Controllers of Kubernetes' own objects: garbage, endpoints, queues, taints, namespaces."""
