"""What a control plane does by itself."""
