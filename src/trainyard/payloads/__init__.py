"""The programs that run inside the pods, as text: those that launch over ssh, mounted from a
ConfigMap, the observer, what holds pods of jobs that restart in place, and what checks nodes.

Nothing here is imported by trainyard itself but this list. The programs need Python 3.8 and its
standard library; what each does is in its own first lines.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

NAMES = (
    *("supervise.py", "serving.py", "fitness.py", "ending.py", "processes.py"),
    *("launch.py", "links.py", "preflight.py", "programs.py", "places.py"),
    *("minder.py", "rank.py", "colossalai_run.py"),
)
TORCHRUN = "torchrun.py"
"""Beside them; it needs torch, and what it is depends on who runs it."""
OBSERVER = {
    "hook.py": "sitecustomize.py",
    "answering.py": "trainyard_observer/answering.py",
    "arrivals.py": "trainyard_observer/arrivals.py",
    "cadence.py": "trainyard_observer/cadence.py",
    "events.py": "trainyard_observer/events.py",
    "observer.py": "trainyard_observer/observer.py",
    "sampling.py": "trainyard_observer/sampling.py",
    "signs.py": "trainyard_observer/signs.py",
    "standby.py": "trainyard_observer/standby.py",
    "telling.py": "trainyard_observer/telling.py",
}
"""The observer's programs, and where a pod's Python finds them."""
HOLDER = ("hold.py", "processes.py", "starting.py", "telling.py")
"""What starts the command again in the same pod."""
CHECKER = ("node_check.py", "pairs.py", *HOLDER)
"""What looks, before the command starts, how the pod's node does."""


def texts(names: Iterable[str] = NAMES) -> dict[str, str]:
    """File names and contents."""
    return {name: _text(name) for name in names}


def reporter() -> str:
    """`trainyard.report`, which needs nothing beside it."""
    return _text("report.py")


@functools.lru_cache(maxsize=64)
def _text(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
