"""The pod network: links and addresses by netlink, and the relay that serves ClusterIP Services."""
