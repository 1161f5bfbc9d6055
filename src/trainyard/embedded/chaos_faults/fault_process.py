"""Runs a fault in a process of its own, since a process cannot leave namespaces that it entered.

The process prints a line once the fault is in place and undoes it when its input ends, whatever
happened to its parent.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trainyard.podruntime import syscalls
from trainyard.schema.errors import TrainyardError

_KINDS = {
    "user": syscalls.CLONE_NEWUSER,
    "mnt": syscalls.CLONE_NEWNS,
    "net": syscalls.CLONE_NEWNET,
}


@asynccontextmanager
async def fault_process(module: str, *arguments: str, otherwise: str) -> AsyncIterator[None]:
    """For the block, the fault of `python -m MODULE WORDS`; TrainyardError where it cannot be."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        if not await process.stdout.readline():
            last = (await process.stderr.read()).decode(errors="replace").strip()
            raise TrainyardError(f"{otherwise}: {last.rpartition(chr(10))[2]}")
        yield
    finally:
        process.stdin.close()
        await asyncio.shield(process.wait())


def enter_namespaces(pid: int | str, *names: str) -> None:
    """These namespaces of a process; the user namespace only if it is not our own."""
    for name in names:
        path = f"/proc/{pid}/ns/{name}"
        if name == "user" and os.readlink(path) == os.readlink("/proc/self/ns/user"):
            continue
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            syscalls.setns(descriptor, _KINDS[name])
        finally:
            os.close(descriptor)
