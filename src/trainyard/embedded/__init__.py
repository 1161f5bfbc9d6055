"""The embedded cluster: store, API server, scheduler, node agent, pod network."""
