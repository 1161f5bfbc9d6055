"""The node agent: pods as processes of this machine.

Two halves meet over a socket. The *shim* (``shim``, ``container``, ``rootfs``, ``netlink``) is a
small single-threaded process that forks containers, reaps them and keeps their logs; it imports
nothing heavy and may outlive the cluster process. The *agent* (``agent``, ``worker`` and what they
use) runs inside the cluster process, reads pods from the registry and tells the shim what to do.
"""
