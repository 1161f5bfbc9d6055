"""The node agent: pods as processes of this machine.

The agent runs inside the cluster's process, reads pods from the registry and drives the shim, a
process of its own that may outlive it (``trainyard.podruntime``).
"""
