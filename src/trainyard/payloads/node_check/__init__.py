"""The node check: what tests a pod's node before the pod's command starts."""
