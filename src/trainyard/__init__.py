"""trainyard: distributed training jobs, the same YAML here and on any Kubernetes cluster."""

__version__ = "0.1.0"
