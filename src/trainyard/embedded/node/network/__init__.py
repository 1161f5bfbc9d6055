"""How pods find and reach each other: host names, Services and ports of the node."""
