"""A job run twice, without faults and with them, each time on a cluster of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from trainyard.api.chaos.chaos_claims import unfillable
from trainyard.api.chaos.chaos_cluster import BrokenCluster
from trainyard.api.chaos.chaos_injection import Lengths, refusal
from trainyard.api.chaos.chaos_report import SUCCEEDED, ChaosResult, Report
from trainyard.api.chaos.chaos_schedule import Fault, planned
from trainyard.api.chaos.chaos_trial import Order, Trial
from trainyard.client.cluster_target import CommandError, first_of
from trainyard.schema.dataclass import dataclass

if TYPE_CHECKING:
    from trainyard.composition.cluster_shape import ClusterShape
    from trainyard.manifest.reader import ReadResult

_SHARE = 4
"""Without `--every` so many faults would come in a run that none delays."""
_LEAST_EVERY, _MOST_EVERY = 2.0, 60.0
_LIMIT_SECONDS, _LIMIT_TIMES = 600.0, 10.0
_BASELINE_LIMIT_SECONDS = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a user wants to know; None: what the run without faults suggests."""

    faults: tuple[Fault, ...]
    are_chosen: bool
    """The user named the faults: one that cannot be done is an error."""
    seed: int
    every: float | None = None
    """Seconds."""
    lasting: float | None = None
    """Seconds."""
    patience: float = 120.0
    """Seconds."""
    most: int | None = None
    limit: float | None = None
    """Seconds."""
    baseline: ChaosResult | None = None
    results: Sequence[str] = ()
    shared: frozenset[str] = field(default_factory=frozenset)


def compared(
    found: ReadResult, shape: ClusterShape, wishes: Wishes, announce: Callable[[str], None]
) -> Report:
    """Run the job of a manifest to its end, twice; `announce` is told how that goes.

    Raises TrainyardError.
    """
    if len(found.jobs) != 1:
        raise CommandError(f"there are {len(found.jobs)} jobs in the manifest: leave one of them")
    left_alone = _check(found, shape, wishes)
    for text in left_alone:
        announce(text)
    limit = wishes.limit or _BASELINE_LIMIT_SECONDS
    order = Order(found.documents, wishes.results, limit)
    baseline = wishes.baseline
    if baseline is None:
        announce("without faults:")
        with _cluster(shape, wishes) as cluster:
            _possible(wishes, cluster.isolation)  # before the job is run for nothing
            baseline, _ = _run(cluster, order, announce)
        announce(f"  {baseline.phase} after {baseline.seconds:.1f} s")
        if baseline.phase != SUCCEEDED:
            raise CommandError(
                f"the job does not succeed without faults ({baseline.phase}): {baseline.message}"
            )
    every = wishes.every or min(max(baseline.seconds / _SHARE, _LEAST_EVERY), _MOST_EVERY)
    with _cluster(shape, wishes) as cluster:
        faults, notes = _possible(wishes, cluster.isolation)
        notes += left_alone
        announce(f"with a fault every {every:.3g} s (seed {wishes.seed}):")
        hard = replace(
            order,
            limit=wishes.limit or _LIMIT_SECONDS + _LIMIT_TIMES * baseline.seconds,
            plan=planned(wishes.seed, faults, every),
            lengths=Lengths(wishes.lasting or every / 4, wishes.patience),
            most=wishes.most,
        )
        result, trial = _run(cluster, hard, announce)
    announce(f"  {result.phase} after {result.seconds:.1f} s")
    if not trial.struck:
        notes.append(f"no fault came in {result.seconds:.0f} s: choose a shorter --every")
    names = [str(fault) for fault in faults]
    name = str(found.jobs[0].metadata.name)
    return Report(name, wishes.seed, every, names, baseline, result, trial.struck, notes)


def read_baseline(text: str) -> ChaosResult:
    """The `baseline` of a report in JSON; raises CommandError."""
    try:
        return ChaosResult.read(json.loads(text)["baseline"])
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"it is no report of `trainyard chaos -o json`: {error}") from error


def _cluster(shape: ClusterShape, wishes: Wishes) -> BrokenCluster:
    return BrokenCluster(shape, wishes.shared, can_fill=Fault.DISK in wishes.faults)


def _check(found: ReadResult, shape: ClusterShape, wishes: Wishes) -> list[str]:
    """What a user is to know at once; raises CommandError."""
    for claim in sorted(wishes.shared - set(shape.volumes)):
        raise CommandError(f"--shared {claim}: no --volume {claim}=DIR says which folder it is")
    for path in wishes.results:
        if wishes.baseline is not None and path not in wishes.baseline.files:
            raise CommandError(f"--result {path}: the report of --baseline tells nothing of it")
    if Fault.DISK not in wishes.faults:
        return []
    alone = unfillable((each.raw for each in found.documents), wishes.shared)
    return [f"disk leaves alone what lies on this machine's own: {', '.join(alone)}"] * bool(alone)


def _possible(wishes: Wishes, isolation: str) -> tuple[list[Fault], list[str]]:
    """The faults that can be done, and why others cannot; CommandError if such a one was chosen."""
    reasons = {fault: refusal(fault, isolation) for fault in wishes.faults}
    for fault, reason in reasons.items():
        if reason and wishes.are_chosen:
            raise CommandError(f"{fault} cannot be done: {reason}")
    notes = [f"{fault} was left out: {reason}" for fault, reason in reasons.items() if reason]
    return [fault for fault, reason in reasons.items() if not reason], notes


def _run(
    cluster: BrokenCluster, order: Order, announce: Callable[[str], None]
) -> tuple[ChaosResult, Trial]:
    trial = Trial(cluster, order, announce)
    try:
        return asyncio.run(trial.run()), trial
    except BaseExceptionGroup as errors:
        raise first_of(errors) from errors
