"""What a job's pods and the node that runs them know of each other: paths, variables, a condition.

A module of its own that imports next to nothing: the embedded cluster is ready before anything
that knows what a job is has been imported (decision 335).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

CHANNEL_PATH = "/t9k/channel"
"""Where a pod finds how to reach the controller."""
OBSERVER_PATH = "/t9k/observer"
"""Where it finds the programs by which its ranks are observed."""
OBSERVE = "TRAINYARD_OBSERVE"
"""The variable that has them observed."""
PYTHONPATH = "PYTHONPATH"
STOPPED = "trainyard.dev/Stopped"
"""The condition of an observed pod in which processes are stopped (decision 291)."""


def with_observer_first(path: str) -> str:
    """A PYTHONPATH with the observer before it, once."""
    if OBSERVER_PATH in path.split(":"):
        return path
    return f"{OBSERVER_PATH}:{path}" if path else OBSERVER_PATH


def stopped_text(processes: Iterable[int]) -> str:
    """The message of that condition: their numbers, as the pod has them."""
    return f"stopped by a signal: {', '.join(map(str, sorted(processes)))}"


def parse_stopped(message: str) -> frozenset[int]:
    """The numbers in such a message."""
    return frozenset(int(number) for number in re.findall(r"\b\d{1,9}\b", message))
