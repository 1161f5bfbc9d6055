"""What is made ahead of the next pods, their networks and first processes, and when."""

from __future__ import annotations

import time

from trainyard.podruntime.isolation import Network
from trainyard.podruntime.nursery import Nursery

_SPARES_WHEN_YOUNG, _SPARES = 1, 8
_YOUNG_SECONDS = 1.0
"""For so long a shim makes no more than one pod ahead. That of a short `run` would make the others
while the cluster starts, which wants the same processors, and have them to end in the end."""
_IDLE_SECONDS, _ALONE_SECONDS = 0.001, 0.01


def idle_seconds(starting: int) -> float:
    """After how long without work something is made, while so many pods start.

    Sooner it would take the processor, and the kernel's locks, from pods that have just begun to.
    One that starts alone gains most: its next request comes within a few milliseconds, and would
    wait for the two that a network takes. Of many pods the last ones want what is made meanwhile.
    """
    return _ALONE_SECONDS if starting == 1 else _IDLE_SECONDS


class Ahead:
    """Has the network and the nursery make what they can, and knows of the pods that start."""

    def __init__(self, network: Network, nursery: Nursery) -> None:
        self._network, self._nursery = network, nursery
        self._adult_at = time.monotonic() + _YOUNG_SECONDS
        self._expected: set[str] = set()

    def expect(self, pod: str) -> None:
        """The pod is there, and its first container has still to come."""
        self._expected.add(pod)

    def arrived(self, pod: str) -> None:
        """That has come, or never will."""
        self._expected.discard(pod)

    def wait_seconds(self) -> float | None:
        """How long to wait for work before `make`; None: there is nothing to make."""
        most = self._most
        if not (self._network.wants_spare(most) or self._nursery.wants_spare(most)):
            return None
        return idle_seconds(len(self._expected) + self._nursery.starting)

    def make(self) -> None:
        """One of each, as far as they are wanted."""
        self._network.prepare_spare(self._most)
        self._nursery.prepare_spare(self._most)

    @property
    def _most(self) -> int:
        return _SPARES if time.monotonic() >= self._adult_at else _SPARES_WHEN_YOUNG
