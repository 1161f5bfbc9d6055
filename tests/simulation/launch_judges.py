"""Judges of texts about launches over ssh that wait, or have started."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.simulation.judges import _if, says
from tests.simulation.telling import Told

WAITS = r"The launch has not started: (?P<words>.+)\."


def _started(told: Told) -> list[bool | None]:
    """What the startup probes of the job's containers have told."""
    return [c.started for p in told.observed.pods for c in p.containers if c.state == "Running"]


@says("Launched=True", "-", r"The launch has started\.", once=True)
def _launched(told: Told, _: re.Match[str]) -> Iterator[str]:
    yield from _if(True not in _started(told), "no container says so")


@says("Launched=False", "LaunchWaits", WAITS, once=True)
@says("event LaunchWaits", "Warning", WAITS)
def _waits(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _if(False not in _started(told), "no container waits")
    known = [*told.observed.words.values(), "its pod does not say why"]
    yield from _if(found["words"] not in known, f"the words are {known}")


@says("Launched=False", "-", r"The launch starts once all replicas run\.", once=True)
def _to_be_launched(told: Told, _: re.Match[str]) -> Iterator[str]:
    yield from _if(told.well == told.total and told.phase == "Running", f"{dict(told.counts)}")
