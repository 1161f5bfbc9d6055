"""The programs that launch over ssh, as text: they run inside the pods, mounted from a ConfigMap.

Nothing here is imported by trainyard itself but this list. The programs need Python 3.8 and its
standard library; what each does is in its own first lines.
"""

from __future__ import annotations

from pathlib import Path

NAMES = (
    *("supervise.py", "serving.py", "fitness.py", "ending.py", "processes.py"),
    *("launch.py", "links.py", "preflight.py", "programs.py", "places.py"),
    *("minder.py", "rank.py", "colossalai_run.py"),
)
TORCHRUN = "torchrun.py"
"""Beside them; it needs torch, and what it is depends on who runs it."""


def texts() -> dict[str, str]:
    """File names and contents."""
    folder = Path(__file__).parent
    return {name: (folder / name).read_text(encoding="utf-8") for name in NAMES}
