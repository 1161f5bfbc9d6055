"""How soon a script starts that a user names on the command line, beside torchrun and torchx.

All three in turn, and back again, so that what else the machine does meets all of them alike.
torchx has an environment of its own, which `make bench` makes, and finds torchrun in the PATH.
The CPU time is that of all processes that a command starts, from its beginning to its end, and less
at the mercy of what else the machine does.
"""

from __future__ import annotations

import os
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench.commands import TRAINYARD, state

Row = tuple[str, float | None, str, float | None]
ROUNDS = 7
_TORCHX = Path(__file__).parent.parent / ".cache" / "torchx" / "bin" / "torchx"
_SCRIPT = """\
import time
print("first line at", time.monotonic(), flush=True)
raise SystemExit
import torch
"""
_IMPORT = "import time; t = time.perf_counter(); import trainyard; print(time.perf_counter() - t)"
_MORE_THAN_TORCHRUN = 0.3
"""Seconds."""


class Start(NamedTuple):
    """One start of a script, in seconds: until its first line, and CPU time in all."""

    first_line: float
    cpu: float


def measure() -> list[Row]:
    """Medians of cold processes; files are in the page cache."""
    times = [float(_output(sys.executable, "-c", _IMPORT)) for _ in range(3 * ROUNDS)]
    rows: list[Row] = [("`import trainyard`", 1000 * statistics.median(times), "ms", 60.0)]
    with state() as folder:
        (folder / "train.py").write_text(_SCRIPT)
        os.chdir(folder)
        found = _starts()
    torchrun, torchx = found["torchrun"], found.get("torchx")
    goal = torchrun.first_line + _MORE_THAN_TORCHRUN
    goal = min(goal, torchx.first_line) if torchx else goal
    ours = found["trainyard"]
    cpu = "the same, CPU time of all its processes"
    return [
        *rows,
        ("`torchrun train.py` to the script's first line", torchrun.first_line, "s", None),
        (cpu, torchrun.cpu, "s", None),
        ("`torchx run -s local_cwd dist.ddp`, the same", torchx and torchx.first_line, "s", None),
        (cpu, torchx and torchx.cpu, "s", None),
        ("`trainyard run train.py`, the same", ours.first_line, "s", goal),
        (cpu, ours.cpu, "s", None),
    ]


def _starts() -> dict[str, Start]:
    """The medians of each command."""
    commands = {
        "trainyard": (*TRAINYARD, "run", "train.py"),
        "torchrun": (str(Path(sys.executable).with_name("torchrun")), "train.py"),
    }
    if _TORCHX.exists():
        ddp = ("run", "-s", "local_cwd", "dist.ddp", "-j", "1x1", "--script", "train.py")
        commands["torchx"] = (str(_TORCHX), *ddp)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    found: dict[str, list[Start]] = {name: [] for name in commands}
    for number in range(ROUNDS + 1):
        for name in list(commands)[:: 1 if number % 2 else -1]:
            start = _start(*commands[name])
            if number:  # the first round fills the page cache
                found[name].append(start)
    return {
        name: Start(*map(statistics.median, zip(*each, strict=True)))
        for name, each in found.items()
    }


def _start(*command: str) -> Start:
    used, started = _cpu_of_children(), time.monotonic()
    output = _output(*command)
    match = re.search(r"first line at ([\d.]+)", output)
    if match is None:
        raise RuntimeError(f"{' '.join(command)}: {output}")
    return Start(float(match[1]) - started, _cpu_of_children() - used)


def _cpu_of_children() -> float:
    """Of those that have ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _output(*command: str) -> str:
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    ).stdout
