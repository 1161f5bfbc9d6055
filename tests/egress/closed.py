"""Clusters without a way out: because it is not wanted, and because the kernel lacks what it takes.

The last is had by a filter of system calls, as where a container runtime has one.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import platform
import struct
import sys
from pathlib import Path
from typing import Any

from tests.egress import world
from tests.egress.scenes import does
from tests.embedded.node_cluster import Cluster, cluster
from trainyard.embedded.service_supervisor import Supervisor
from trainyard.podruntime import syscalls

_SOCKET = {"x86_64": 41, "aarch64": 198}[platform.machine()]
_AF_NETLINK, _NETLINK_NETFILTER = 16, 12
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_NO_PACKET_FILTER = (
    (_LOAD, 0, 0, 0),
    (_EQUAL, 0, 5, _SOCKET),
    (_LOAD, 0, 0, 16),
    (_EQUAL, 0, 3, _AF_NETLINK),
    (_LOAD, 0, 0, 32),
    (_EQUAL, 0, 1, _NETLINK_NETFILTER),
    (_RETURN, 0, 0, 0x50000 | errno.EPROTONOSUPPORT),
    (_RETURN, 0, 0, 0x7FFF0000),
)


async def is_closed(node: Cluster) -> None:
    text = await does(
        node,
        "closed",
        f"""
        print("nameserver" in open("/etc/resolv.conf").read())
        print(isinstance(connect(SERVER, {world.SINK_PORT}, seconds=1), str))
        for name in ({world.NAME!r}, HOST):
            try:
                print(socket.gethostbyname(name))
            except OSError:
                print("none")
        """,
    )
    assert text.splitlines() == ["False", "True", "none", "none"]


async def main(folder: Path) -> dict[str, Any]:
    findings = Supervisor()
    async with cluster(folder / "none", findings=findings, is_network_open=False) as node:
        await is_closed(node)
    asked_for = dict(findings.facts)
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("trainyard").addHandler(handler)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.filter_calls(b"".join(struct.pack("=HBBI", *each) for each in _NO_PACKET_FILTER))
    async with cluster(folder / "lacking", findings=findings) as node:
        await is_closed(node)
    return {"none": asked_for, "lacking": findings.facts, "told": told}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
