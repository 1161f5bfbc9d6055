"""A job run twice, without faults and with them, each time on a cluster of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from trainyard.api.chaos.cluster import BrokenCluster
from trainyard.api.chaos.report import SUCCEEDED, Report, Result
from trainyard.api.chaos.schedule import Fault, planned
from trainyard.api.chaos.strikes import Lengths
from trainyard.api.chaos.trial import Order, Trial
from trainyard.client.target import CommandError, first_of
from trainyard.schema.dataclass import dataclass

if TYPE_CHECKING:
    from trainyard.api.shape import ClusterShape
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
    baseline: Result | None = None
    results: Sequence[str] = ()
    shared: frozenset[str] = field(default_factory=frozenset)


def compared(
    found: ReadResult, shape: ClusterShape, wishes: Wishes, tell: Callable[[str], None]
) -> Report:
    """Run the job of a manifest to its end, twice; `tell` is told how that goes.

    Raises TrainyardError.
    """
    if len(found.jobs) != 1:
        raise CommandError(f"there are {len(found.jobs)} jobs in the manifest: leave one of them")
    _check(shape, wishes)
    limit = wishes.limit or _BASELINE_LIMIT_SECONDS
    order = Order(found.documents, wishes.results, limit)
    baseline = wishes.baseline
    if baseline is None:
        tell("without faults:")
        with BrokenCluster(shape, wishes.shared) as cluster:
            baseline, _ = _run(cluster, order, tell)
        tell(f"  {baseline.phase} after {baseline.seconds:.1f} s")
        if baseline.phase != SUCCEEDED:
            raise CommandError(
                f"the job does not succeed without faults ({baseline.phase}): {baseline.message}"
            )
    every = wishes.every or min(max(baseline.seconds / _SHARE, _LEAST_EVERY), _MOST_EVERY)
    with BrokenCluster(shape, wishes.shared) as cluster:
        tell(f"with a fault every {every:.3g} s (seed {wishes.seed}):")
        hard = replace(
            order,
            limit=wishes.limit or _LIMIT_SECONDS + _LIMIT_TIMES * baseline.seconds,
            plan=planned(wishes.seed, wishes.faults, every),
            lengths=Lengths(wishes.lasting or every / 4, wishes.patience),
            most=wishes.most,
        )
        result, trial = _run(cluster, hard, tell)
    tell(f"  {result.phase} after {result.seconds:.1f} s")
    notes = []
    if not trial.struck:
        notes.append(f"no fault came in {result.seconds:.0f} s: choose a shorter --every")
    names = [str(fault) for fault in wishes.faults]
    name = str(found.jobs[0].metadata.name)
    return Report(name, wishes.seed, every, names, baseline, result, trial.struck, notes)


def read_baseline(text: str) -> Result:
    """The `baseline` of a report in JSON; raises CommandError."""
    try:
        return Result.read(json.loads(text)["baseline"])
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"it is no report of `trainyard chaos -o json`: {error}") from error


def _check(shape: ClusterShape, wishes: Wishes) -> None:
    for claim in sorted(wishes.shared - set(shape.volumes)):
        raise CommandError(f"--shared {claim}: no --volume {claim}=DIR says which folder it is")


def _run(cluster: BrokenCluster, order: Order, tell: Callable[[str], None]) -> tuple[Result, Trial]:
    trial = Trial(cluster, order, tell)
    try:
        return asyncio.run(trial.run()), trial
    except BaseExceptionGroup as errors:
        raise first_of(errors) from errors
