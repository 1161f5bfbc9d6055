"""`runPolicy.podFailurePolicy`: its fields and its rules."""
