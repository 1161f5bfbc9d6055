"""What a cluster needs to run the operator."""
