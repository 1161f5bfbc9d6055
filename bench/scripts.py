"""How soon a script starts that a user names on the command line, beside torchrun and torchx.

All three in turn, and back again, so that what else the machine does meets all of them alike.
torchx has an environment of its own, which `make bench` makes, and finds torchrun in the PATH.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.commands import TRAINYARD, state

Row = tuple[str, float | None, str, float | None]
ROUNDS = 7
_TORCHX = Path(__file__).parent.parent / ".cache" / "torchx" / "bin" / "torchx"
_SCRIPT = 'import time\nprint("first line at", time.monotonic(), flush=True)\nimport torch\n'
_IMPORT = "import time; t = time.perf_counter(); import trainyard; print(time.perf_counter() - t)"
_MORE_THAN_TORCHRUN = 0.3
"""Seconds."""


def measure() -> list[Row]:
    """Medians of cold processes; files are in the page cache."""
    times = [float(_output(sys.executable, "-c", _IMPORT)) for _ in range(3 * ROUNDS)]
    rows: list[Row] = [("`import trainyard`", 1000 * statistics.median(times), "ms", 60.0)]
    with state() as folder:
        (folder / "train.py").write_text(_SCRIPT)
        os.chdir(folder)
        first = _first_lines()
    torchrun, torchx = first["torchrun"], first.get("torchx")
    goal = torchrun + _MORE_THAN_TORCHRUN
    return [
        *rows,
        ("`torchrun train.py` to the script's first line", torchrun, "s", None),
        ("`torchx run -s local_cwd dist.ddp`, the same", torchx, "s", None),
        ("`trainyard run train.py`, the same", first["trainyard"], "s", min(goal, torchx or goal)),
    ]


def _first_lines() -> dict[str, float]:
    commands = {
        "trainyard": (*TRAINYARD, "run", "train.py"),
        "torchrun": (str(Path(sys.executable).with_name("torchrun")), "train.py"),
    }
    if _TORCHX.exists():
        ddp = ("run", "-s", "local_cwd", "dist.ddp", "-j", "1x1", "--script", "train.py")
        commands["torchx"] = (str(_TORCHX), *ddp)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    found: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(ROUNDS + 1):
        for name in list(commands)[:: 1 if number % 2 else -1]:
            seconds = _to_first_line(*commands[name])
            if number:  # the first round fills the page cache
                found[name].append(seconds)
    return {name: statistics.median(each) for name, each in found.items()}


def _to_first_line(*command: str) -> float:
    started = time.monotonic()
    output = _output(*command)
    match = re.search(r"first line at ([\d.]+)", output)
    if match is None:
        raise RuntimeError(f"{' '.join(command)}: {output}")
    return float(match[1]) - started


def _output(*command: str) -> str:
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    ).stdout
