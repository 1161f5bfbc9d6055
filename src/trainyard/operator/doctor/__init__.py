"""What `trainyard doctor --context` checks on a cluster."""
