"""The controller as a process that is killed again and again, and at once succeeded by another.

`python -m tests.embedded.killed_controller SOCKET` imports everything once and forks a controller;
when that one dies it forks the next. So a kill costs milliseconds, not a start of the interpreter,
and hits the controller at work. Each process id is printed on a line of its own.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

from trainyard.kinds.shared.job_settings import Settings
from trainyard.kube.client import Client
from trainyard.operator import embedded_operator
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.podruntime import syscalls

LIFECYCLE = replace(
    Settings.local(),
    backoff_base_seconds=0.05,
    backoff_max_seconds=0.2,
    incident_settle_seconds=0.2,
)
"""Short delays: the more restarts there are, the more there is to disturb."""


async def control(path: str) -> None:
    """Look after all jobs of the cluster until killed."""
    async with Client.unix(path) as client:
        await embedded_operator.run(client, OperatorSettings(lifecycle=LIFECYCLE))


def _fork(path: str) -> int:
    pid = os.fork()
    if not pid:
        syscalls.die_with_parent()
        try:
            asyncio.run(control(path))
        finally:
            os._exit(1)
    return pid


class Controllers:
    """The series of controllers, from the test's side."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, path: Path) -> Controllers:
        """Start the first of them."""
        words = [sys.executable, "-m", __name__, str(path)]
        return cls(await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE))

    async def next_pid(self) -> int:
        """The next controller, as soon as it was forked."""
        assert self._process.stdout is not None
        return int(await self._process.stdout.readline())

    async def end(self) -> None:
        """End the last of them; there is no further one."""
        self._process.kill()
        await self._process.wait()


def main() -> None:
    """One controller after the other."""
    syscalls.die_with_parent()
    while True:
        pid = _fork(sys.argv[1])
        print(pid, flush=True)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
