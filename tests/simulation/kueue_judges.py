"""Judges for what is told of jobs that Kueue admits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.queueing.kueue import PLURAL, Object, finished, true
from tests.simulation.reconcile_result import ReconcileResult
from tests.simulation.text_judges import judges

WAITS = r"waits for admission by Kueue: Workload (?P<name>[\w.-]+)(?:, queue \S+:| is being) .+"


@judges("Running=False", "WaitsForAdmission", WAITS)
@judges("event Evicted", "Normal", rf"The job loses its pods, at no cost, until .+: it {WAITS}")
def _waits(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    if any(map(admitted, workloads(result))):
        yield "one of its Workloads is admitted"
    if result.creates:
        yield f"pods are created: {sorted(result.creates)}"
    if result.phase not in ("Pending", "Resuming"):
        yield f"the phase is {result.phase}"


@judges("event Admitted", "Normal", r"Kueue has admitted the job again: .+")
def _admitted(result: ReconcileResult, _: re.Match[str]) -> Iterator[str]:
    if not any(map(admitted, workloads(result))):
        yield "none of its Workloads is admitted"
    if not result.account(result.before).get("held"):
        yield "it was not held"


@judges(
    "Running=False", "FlavorUnknown", r"Kueue has admitted the job to (?P<names>.+): no such .+"
)
@judges(
    "event FlavorUnknown", "Warning", r"Kueue has admitted the job to (?P<names>.+): no such .+"
)
def _flavor_unknown(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    known = [name for name in found["names"].split(", ") if name in result.observed.flavors]
    if known:
        yield f"{known} are known"
    if result.creates:
        yield f"pods are created: {sorted(result.creates)}"


def workloads(result: ReconcileResult) -> Iterator[Object]:
    """Those of the job, as they were seen."""
    for owned in result.observed.owned:
        if owned.resource.plural == PLURAL:
            yield {"status": owned.status, "is_going": owned.deleting}


def admitted(workload: Object) -> bool:
    """Whether pods may run by this one."""
    is_over = workload["is_going"] or finished(workload) or true(workload, "Evicted")
    return not is_over and true(workload, "Admitted")
