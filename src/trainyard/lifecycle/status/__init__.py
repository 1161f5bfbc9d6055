"""The status that a reconcile writes: conditions, replicas, reasons, and reading what is stored."""
