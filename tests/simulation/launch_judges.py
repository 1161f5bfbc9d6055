"""Judges of texts about launches over ssh that wait, or have started."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.simulation.reconcile_result import ReconcileResult
from tests.simulation.text_judges import _if, exactly, judges
from trainyard.lifecycle import texts

WAITS = r"The launch has not started: (?P<words>.+)\."
PREFLIGHT = "preflight: "
DIFFER = r"The launch has started, but its hosts differ: (?P<words>.+)\."


def _started(result: ReconcileResult) -> list[bool | None]:
    """What the startup probes of the job's containers have told."""
    return [c.started for p in result.observed.pods for c in p.containers if c.state == "Running"]


@judges("Launched=True", "-", exactly(texts.LAUNCHED), once=True)
def _launched(result: ReconcileResult, _: re.Match[str]) -> Iterator[str]:
    yield from _if(True not in _started(result), "no container says so")
    known = [
        words for words in result.observed.probe_output.values() if words.startswith(PREFLIGHT)
    ]
    yield from _if(bool(known), f"the words are {known}")


@judges("Launched=True", "HostsDiffer", DIFFER, once=True)
@judges("event HostsDiffer", "Warning", DIFFER)
def _differ(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    known = list(result.observed.probe_output.values())
    yield from _if(PREFLIGHT + found["words"] not in known, f"the words are {known}")


@judges(
    "Launched=False",
    "PreflightFailed",
    r"The launch has not started: its preflight failed; (?P<words>.+)\.",
    once=True,
)
def _preflight(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    said = [c.message for p in result.observed.pods for c in p.containers if c.failed]
    line = f"the preflight failed with exit code 2: {found['words']}"
    yield from _if(not any(line in message for message in said), f"the pods said {said}")


@judges("Launched=False", "LaunchWaits", WAITS, once=True)
@judges("event LaunchWaits", "Warning", WAITS)
def _waits(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _if(False not in _started(result), "no container waits")
    known = [*result.observed.probe_output.values(), "its pod does not say why"]
    yield from _if(found["words"] not in known, f"the words are {known}")


@judges("Launched=False", "-", exactly(texts.TO_BE_LAUNCHED), once=True)
def _to_be_launched(result: ReconcileResult, _: re.Match[str]) -> Iterator[str]:
    yield from _if(
        result.well == result.total and result.phase == "Running", f"{dict(result.counts)}"
    )
