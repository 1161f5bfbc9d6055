"""The controller around `plan()`: watches, cache, queue, executor. Knows no kind from another."""
