"""What a job's pods and the node that runs them know of each other: paths, variables, a condition.

A module of its own that imports next to nothing: the embedded cluster is ready before anything
that knows what a job is has been imported (decision 335).
"""

from __future__ import annotations

import re

from trainyard.kube import embedded_contract

CHANNEL_PATH = "/t9k/channel"
"""Where a pod finds how to reach the controller."""
OBSERVER_PATH = embedded_contract.OBSERVER_PATH
"""Where it finds the programs by which its ranks are observed."""
OBSERVE = embedded_contract.OBSERVE
"""The variable that has them observed."""
PYTHONPATH = "PYTHONPATH"
STOPPED = embedded_contract.STOPPED
"""The condition of an observed pod in which processes are stopped (decision 291)."""

with_observer_first = embedded_contract.prepend_observer
stopped_text = embedded_contract.stopped_message


def parse_stopped(message: str) -> frozenset[int]:
    """The numbers in such a message."""
    return frozenset(int(number) for number in re.findall(r"\b\d{1,9}\b", message))
