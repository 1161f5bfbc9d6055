"""One pod on this node: its worker, what it occupies, its object and its status."""
