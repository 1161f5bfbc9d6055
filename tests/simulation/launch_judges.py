"""Judges of texts about launches over ssh that wait, or have started."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.simulation.judges import _if, says
from tests.simulation.telling import Told

WAITS = r"The launch has not started: (?P<words>.+)\."


PREFLIGHT = "preflight: "
DIFFER = r"The launch has started, but its hosts differ: (?P<words>.+)\."


def _started(told: Told) -> list[bool | None]:
    """What the startup probes of the job's containers have told."""
    return [c.started for p in told.observed.pods for c in p.containers if c.state == "Running"]


@says("Launched=True", "-", r"The launch has started\.", once=True)
def _launched(told: Told, _: re.Match[str]) -> Iterator[str]:
    yield from _if(True not in _started(told), "no container says so")
    known = [words for words in told.observed.probe_output.values() if words.startswith(PREFLIGHT)]
    yield from _if(bool(known), f"the words are {known}")


@says("Launched=True", "HostsDiffer", DIFFER, once=True)
@says("event HostsDiffer", "Warning", DIFFER)
def _differ(told: Told, found: re.Match[str]) -> Iterator[str]:
    known = list(told.observed.probe_output.values())
    yield from _if(PREFLIGHT + found["words"] not in known, f"the words are {known}")


@says(
    "Launched=False",
    "PreflightFailed",
    r"The launch has not started: its preflight failed; (?P<words>.+)\.",
    once=True,
)
def _preflight(told: Told, found: re.Match[str]) -> Iterator[str]:
    said = [c.message for p in told.observed.pods for c in p.containers if c.failed]
    line = f"the preflight failed with exit code 2: {found['words']}"
    yield from _if(not any(line in message for message in said), f"the pods said {said}")


@says("Launched=False", "LaunchWaits", WAITS, once=True)
@says("event LaunchWaits", "Warning", WAITS)
def _waits(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _if(False not in _started(told), "no container waits")
    known = [*told.observed.probe_output.values(), "its pod does not say why"]
    yield from _if(found["words"] not in known, f"the words are {known}")


@says("Launched=False", "-", r"The launch starts once all replicas run\.", once=True)
def _to_be_launched(told: Told, _: re.Match[str]) -> Iterator[str]:
    yield from _if(told.well == told.total and told.phase == "Running", f"{dict(told.counts)}")
