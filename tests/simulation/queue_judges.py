"""Judges for what is told of jobs that Kueue admits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.queueing.kueue import PLURAL, Object, finished, true
from tests.simulation.judges import says
from tests.simulation.telling import Told

WAITS = r"waits for admission by Kueue: Workload (?P<name>[\w.-]+)(?:, queue \S+:| is being) .+"


@says("Running=False", "WaitsForAdmission", WAITS)
@says("event Evicted", "Normal", rf"The job loses its pods, at no cost, until .+: it {WAITS}")
def _waits(told: Told, found: re.Match[str]) -> Iterator[str]:
    if any(map(admitted, workloads(told))):
        yield "one of its Workloads is admitted"
    if told.creates:
        yield f"pods are created: {sorted(told.creates)}"
    if told.phase not in ("Pending", "Resuming"):
        yield f"the phase is {told.phase}"


@says("event Admitted", "Normal", r"Kueue has admitted the job again: .+")
def _admitted(told: Told, _: re.Match[str]) -> Iterator[str]:
    if not any(map(admitted, workloads(told))):
        yield "none of its Workloads is admitted"
    if not told.account(told.before).get("held"):
        yield "it was not held"


@says("Running=False", "FlavorUnknown", r"Kueue has admitted the job to (?P<names>.+): no such .+")
@says("event FlavorUnknown", "Warning", r"Kueue has admitted the job to (?P<names>.+): no such .+")
def _flavor_unknown(told: Told, found: re.Match[str]) -> Iterator[str]:
    known = [name for name in found["names"].split(", ") if name in told.observed.flavors]
    if known:
        yield f"{known} are known"
    if told.creates:
        yield f"pods are created: {sorted(told.creates)}"


def workloads(told: Told) -> Iterator[Object]:
    """Those of the job, as they were seen."""
    for owned in told.observed.owned:
        if owned.resource.plural == PLURAL:
            yield {"status": owned.status, "is_going": owned.deleting}


def admitted(workload: Object) -> bool:
    """Whether pods may run by this one."""
    is_over = workload["is_going"] or finished(workload) or true(workload, "Evicted")
    return not is_over and true(workload, "Admitted")
