"""How soon the embedded cluster is ready, what it weighs, and how long the shortest job takes."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from bench.commands import manifest, seconds, state
from bench.yardstick import bare_start, budget

Row = tuple[str, float, str, float | None]
ROUNDS = 7
_BARE_STARTS = 3
"""In turn with each command: a single one takes a quarter more or less than the next."""


def measure() -> list[Row]:
    """Medians of cold processes; files are in the page cache."""
    bare, ready, first, listed, resident = [], [], [], [], 0.0
    for _ in range(ROUNDS):
        with state() as folder:
            file = _shortest(folder)
            bare.append(_bare())
            ready.append(seconds("up"))
            first.append(ready[-1] + seconds("run", "-f", file))
            listed.append(seconds("list"))
            pid = json.loads((folder / "state" / "cluster.json").read_text())["pid"]
            resident = _resident_mib(pid)  # with its controller, which comes after it is up
    with state() as folder:
        file = _shortest(folder)
        pairs = [(_bare(), seconds("run", "-f", file)) for _ in range(2 * ROUNDS)]
    whole = [took for _, took in pairs]
    of_up = statistics.median(took / start for start, took in zip(bare, ready, strict=True))
    of_run = statistics.median(took / start for start, took in pairs)
    bare += [start for start, _ in pairs]
    return [
        ("a bare interpreter, started and ended", statistics.median(bare), "s", None),
        ("`trainyard up`: process start to a ready cluster", statistics.median(ready), "s", None),
        ("the same, in starts of a bare interpreter", of_up, "x", budget(16.5)),
        ("the same and `trainyard run` of /bin/true on it", statistics.median(first), "s", None),
        ("`trainyard list`", statistics.median(listed), "s", None),
        ("the cluster's resident memory", resident, "MiB", 100.0),
        ("`trainyard run` of /bin/true, in all", statistics.median(whole), "s", None),
        ("the same, in starts of a bare interpreter", of_run, "x", budget(33.0)),
    ]


def _bare() -> float:
    return statistics.median(bare_start() for _ in range(_BARE_STARTS))


def _shortest(folder: Path) -> str:
    """The manifest of a job that ends at once."""
    file = folder / "true.yaml"
    file.write_text(manifest("shortest", "/bin/true"))
    return str(file)


def _resident_mib(pid: int) -> float:
    """The process and what it shares, as ps counts it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} is gone")
