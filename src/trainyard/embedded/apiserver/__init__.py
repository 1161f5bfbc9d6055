"""The HTTP face of the embedded cluster: what kubectl and the controller speak to."""
