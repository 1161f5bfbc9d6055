"""The observer: a thread inside each rank that reports what the rank is doing."""
