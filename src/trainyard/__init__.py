"""trainyard: distributed training jobs, the same YAML on one machine and on any Kubernetes cluster."""

