"""Launches of a replica by torchrun, as its container would start them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainyard.kinds.pytorch import torchrun_launch

TIMEOUT_SECONDS = 300
BIN = Path(sys.executable).parent
STAY = """\
import os, sys, time
agent = os.getppid()
while sys.argv[1] == "stay" and os.getppid() == agent:
    time.sleep(0.1)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def launch(
    tmp_path: Path,
    *script: str,
    nodes: int | str = 1,
    processes: int = 1,
    elastic: bool = False,
    port: int | None = None,
    path: str | None = None,
    log_level: str = "WARNING",
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """The launch of one replica; `nodes` is a number, or `min:max` where it is elastic."""
    args = torchrun_launch.Launch(
        nodes=str(nodes),
        processes=str(processes),
        backend="c10d",
        endpoint=f"127.0.0.1:{port or free_port()}",
        run_id="job-12345",
        role="worker",
        max_restarts=None,
        elastic=elastic,
        extra=(),
        script=script,
    ).arguments()
    path = path or f"{BIN}:{os.environ['PATH']}"
    variables = {"PATH": path, "OMP_NUM_THREADS": "1", "LOGLEVEL": log_level, **(env or {})}
    process = subprocess.Popen(
        [*torchrun_launch.command(elastic=elastic), *args],
        cwd=tmp_path,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=TIMEOUT_SECONDS)


def exit_code(process: subprocess.Popen[bytes]) -> int:
    process.communicate(timeout=TIMEOUT_SECONDS)
    return process.returncode
