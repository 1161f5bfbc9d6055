"""The four-replica demo against the same four torchrun commands started by hand, in one run."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.commands import seconds, state

Row = tuple[str, float, str, float | None]
EXAMPLE = Path(__file__).parent.parent / "examples" / "ddp-torchrun"
REPLICAS, ROUNDS = 4, 3
_PATIENCE_SECONDS = 300


def measure() -> list[Row]:
    """Medians of alternating runs."""
    by_hand, ours = [], []
    with tempfile.TemporaryDirectory() as logs, state():
        for _ in range(ROUNDS):
            by_hand.append(_by_hand(logs))
            job = str(EXAMPLE / "job.yaml")
            ours.append(seconds("run", "-f", job, "--volume", f"digits={logs}"))
    hand, run = statistics.median(by_hand), statistics.median(ours)
    return [
        ("four torchrun commands by hand", hand, "s", None),
        ("`trainyard run` of the same four replicas", run, "s", None),
        ("ratio", run / hand, "x", 1.05),
    ]


def _by_hand(logs: str) -> float:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [
        str(Path(sys.executable).parent / "torchrun"),
        *("--nnodes", str(REPLICAS), "--nproc_per_node", "1", "--rdzv_id", "by-hand"),
        *("--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}"),
    ]
    script = ["train.py", "--epochs", "20", "--log-dir", logs]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = time.perf_counter()
    agents = [
        subprocess.Popen(
            # All on one host name, they would compete for serving the rendezvous.
            [*command, "--rdzv_conf", f"is_host={int(number == 0)}", *script],
            cwd=EXAMPLE,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(REPLICAS)
    ]
    codes = [agent.wait(_PATIENCE_SECONDS) for agent in agents]
    if any(codes):
        raise RuntimeError("torchrun by hand failed")
    return time.perf_counter() - started
