"""A pod cut off from the network of its cluster: its end of the bridge is down for a while.

The pod's own end stays as it is, with its address and routes, as when a cable is pulled. It takes a
process of its own, since who has entered other namespaces cannot come back:
`python -m trainyard.local.faults.network POD SHIM`, with the ids of a process of the pod and of the
shim. It tells when the link is down, and brings it up when its input ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trainyard.payloads.processes import Process
from trainyard.schema.errors import TrainyardError
from trainyard.shim import syscalls
from trainyard.shim.netlink import POD_LINK_INDEX, Netlink


@asynccontextmanager
async def cut_off(pod: Process, shim: Process) -> AsyncIterator[None]:
    """For the block; `pod` is one of the pod's processes. Raises TrainyardError where it cannot."""
    words = ("-m", __name__, str(pod.pid), str(shim.pid))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        if not await process.stdout.readline():
            last = (await process.stderr.read()).decode(errors="replace").strip()
            raise TrainyardError(f"cannot cut the pod off: {last.rpartition(chr(10))[2]}")
        yield
    finally:
        process.stdin.close()
        await asyncio.shield(process.wait())


def main(pod: str, shim: str) -> None:
    """See the module."""
    inside = _entered(pod, shim)
    end = inside.peer_of(POD_LINK_INDEX)
    _enter(f"/proc/{shim}/ns/net", syscalls.CLONE_NEWNET)
    bridge = Netlink()
    bridge.set_down(end)
    try:
        print("down", flush=True)
        sys.stdin.read()
    finally:
        bridge.set_up(end)


def _entered(pod: str, shim: str) -> Netlink:
    """In the pod's network. Without root it takes the shim's user namespace, which rules it."""
    own, its = os.readlink("/proc/self/ns/user"), os.readlink(f"/proc/{shim}/ns/user")
    if own != its:
        _enter(f"/proc/{shim}/ns/user", syscalls.CLONE_NEWUSER)
    _enter(f"/proc/{pod}/ns/net", syscalls.CLONE_NEWNET)
    return Netlink()


def _enter(path: str, kind: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        syscalls.setns(descriptor, kind)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main(*sys.argv[1:])
