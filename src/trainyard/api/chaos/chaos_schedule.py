"""Which fault comes when: drawn from a seed, so that it can be had again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum

from trainyard.schema.dataclass import dataclass

_JITTER = 0.25
"""Of the time between two faults, to either side."""


class Fault(StrEnum):
    """What is done."""

    KILL = "kill"
    STOP = "stop"
    HANG = "hang"
    SLOW = "slow"
    PARTITION = "partition"
    CONTROLLER = "controller"
    SERVER = "server"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault that is to come."""

    after: float
    """Seconds since all replicas ran for the first time."""
    fault: Fault
    draw: float
    """From 0 to 1: whom of those who are there it hits."""


def planned(seed: int, faults: Sequence[Fault], every_seconds: float) -> Iterator[Planned]:
    """Without end. Each fault comes once before one of them comes again."""
    draws = random.Random(seed)
    number, left = 0, list[Fault]()
    while faults:
        if not left:
            left = sorted(set(faults))
            draws.shuffle(left)
        number += 1
        jitter = draws.uniform(-_JITTER, _JITTER)
        yield Planned((number + jitter) * every_seconds, left.pop(), draws.random())
