"""trainyard: distributed training jobs, the same YAML on one machine and on any Kubernetes cluster."""

__version__ = "0.1.0"
