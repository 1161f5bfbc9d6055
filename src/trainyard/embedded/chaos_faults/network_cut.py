"""Cuts a pod off from the cluster's network: takes its end of the bridge down for a while.

The pod's own end stays as it is, with its address and routes, as when a cable is pulled:
`python -m trainyard.embedded.chaos_faults.network_cut POD SHIM`, with the ids of a process of the
pod and of the shim.
"""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager

from trainyard.embedded.chaos_faults.fault_process import enter_namespaces, fault_process
from trainyard.payloads.processes import Process
from trainyard.podruntime.network.netlink import POD_LINK_INDEX, Netlink


def cut_off(pod: Process, pod_runtime: Process) -> AbstractAsyncContextManager[None]:
    """For the block; `pod` is one of the pod's processes. Raises TrainyardError where it cannot."""
    arguments = (str(pod.pid), str(pod_runtime.pid))
    return fault_process(__name__, *arguments, otherwise="cannot cut the pod off")


def main(pod: str, pod_runtime: str) -> None:
    """See the module."""
    enter_namespaces(pod_runtime, "user")  # without root: it rules the networks of the pods
    enter_namespaces(pod, "net")
    end = Netlink().peer_of(POD_LINK_INDEX)
    enter_namespaces(pod_runtime, "net")
    bridge = Netlink()
    bridge.set_down(end)
    try:
        print("down", flush=True)
        sys.stdin.read()
    finally:
        bridge.set_up(end)


if __name__ == "__main__":
    main(*sys.argv[1:])
