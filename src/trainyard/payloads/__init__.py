"""The programs that run inside the pods, as text: those that launch over ssh, mounted from a
ConfigMap, the observer, what holds pods of jobs that restart in place, and what checks nodes.

Nothing here is imported by trainyard itself but this list. The programs need Python 3.8 and its
standard library; what each does is in its own first lines.
"""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Iterable
from pathlib import Path

NAMES = (
    *("supervise.py", "serving.py", "fitness.py", "ending.py", "processes.py"),
    *("launch.py", "links.py", "preflight.py", "programs.py", "places.py"),
    *("minder.py", "rank.py", "colossalai_run.py"),
)
TORCHRUN = "torchrun.py"
"""Beside them; it needs torch, and what it is depends on who runs it."""
HOOK, PACKAGE = "sitecustomize.py", "trainyard_observer.zip"
"""The observer, in a pod's PYTHONPATH: what every Python loads, and what that loads for a rank."""
_OBSERVER = (
    *("answering.py", "arrivals.py", "cadence.py", "events.py", "observer.py", "sampling.py"),
    *("signs.py", "standby.py", "telling.py"),
)
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


def hook() -> str:
    """What `HOOK` contains."""
    return _text("hook.py")


@functools.lru_cache(maxsize=1)
def package() -> str:
    """What `PACKAGE` contains, in base64: one file and two fifths of the bytes, of which every job
    has a copy in its Secret and every pod one on its node (decision 347)."""
    import zipfile  # by the first job that is observed

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in {"__init__.py": "", **texts(_OBSERVER)}.items():
            entry = zipfile.ZipInfo(f"trainyard_observer/{name}")  # of 1980: always the same bytes
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return base64.b64encode(made.getvalue()).decode()


@functools.lru_cache(maxsize=64)
def _text(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
