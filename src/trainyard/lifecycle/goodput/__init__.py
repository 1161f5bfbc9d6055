"""Where a job's wall time goes."""
