"""The controller: watches, cache, queue, executor. It must not know one kind from another."""
