"""The node agent: pods as processes of this machine.

It runs inside the cluster's process, reads pods from the registry and tells the shim, a process of
its own that may outlive it (``trainyard.podruntime``), what to do.
"""
