"""Whether another restart would end as the last ones did.

Two failures in a row are the same where the programs ended by the same lasting cause and nothing
was gained in between. That is told; where `runPolicy.restartJudge` is set, the replica fails for
good instead of spending what is left of its budget (decision 229).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainyard.kinds.shared.workload import FailureAction, Scope
from trainyard.lifecycle.internal_status import Repeat
from trainyard.lifecycle.progress import progress_status
from trainyard.lifecycle.progress.progress_since_restart import TrainingPosition
from trainyard.lifecycle.reconcile_context import REPEATS_IN_VAIN, ReconcileContext, RestartDecision
from trainyard.lifecycle.replica_state import Exit, State
from trainyard.lifecycle.replica_view import Replica, end_order
from trainyard.lifecycle.restart import restart_backoff

Attempts = tuple[Mapping[str, Any], ...]
_BY_RULE = (FailureAction.RESTART, FailureAction.IGNORE)


def describe_lasting_cause(end: Exit | None) -> tuple[str, str]:
    """What an end was, in words, and what equal ends have in common; twice "" for one that costs
    nothing, that a rule has restarted, or that may pass."""
    if end is None or end.free or (end.ruling is not None and end.ruling.action in _BY_RULE):
        return "", ""
    from trainyard.evidence.permanent_causes import permanent_cause  # starting up needs none of it

    cause = permanent_cause(end.code, end.reason, end.message)
    if cause is None:
        return "", ""
    where = f" (init container {end.init_container})" if end.init_container else ""
    return cause.text + where, cause.key + where


def current_position(context: ReconcileContext) -> TrainingPosition:
    """How far the job is, as its status will tell after this pass."""
    return TrainingPosition.from_progress(progress_status.current_progress(context))


def with_refilled_budget(context: ReconcileContext) -> ReconcileContext:
    """With the whole budget, where `runPolicy.backoffReset` is OnProgress and it has got further
    since a restart cost something."""
    internal = context.internal
    if not context.workload.resets_budget_on_progress or not current_position(
        context
    ).is_further_than(internal.reached):
        return context
    records = {name: replace(record, restarts=0) for name, record in internal.records.items()}
    return context.with_internal(replace(internal, backoff=0, records=records))


def find_culprit(own: Sequence[Replica], cause: Replica, seconds: float) -> Replica:
    """Of replicas that failed within so many seconds of the first, one whose own failure it was,
    where `cause` may be the fallout of another."""
    if describe_lasting_cause(cause.exit)[1]:
        return cause
    close = [r for r in own if end_order(r) <= end_order(cause) + seconds]
    return next(
        (r for r in sorted(close, key=end_order) if describe_lasting_cause(r.exit)[1]), cause
    )


def is_in_vain(context: ReconcileContext, replica: Replica) -> bool:
    """Whether a failed replica is not to be started again, since that would end the same way."""
    if not context.workload.restart_judge:
        return False
    return (
        context.internal.record(replica.name).in_vain
        or _next(context, replica).times >= REPEATS_IN_VAIN
    )


def record_failures(context: ReconcileContext, response: RestartDecision) -> RestartDecision:
    """The response, with what has failed by now in its internal status."""
    internal = response.internal
    repeats: dict[str, Repeat] = {}
    for replica in _fresh(context, response):
        repeat = _next(context, replica)
        if repeat.text:
            repeats[replica.name] = repeat
            attempts = _with_cause(
                internal.attempts, context.internal.attempts, replica.name, repeat
            )
            internal = replace(internal, attempts=attempts)
        if _is_alone(context, replica):
            record = internal.record(replica.name)
            in_vain = record.in_vain or is_in_vain(context, replica)
            changed = replace(record, repeat=_kept(repeat), in_vain=in_vain)
            if changed != record:
                internal = internal.put({replica.name: changed})
        else:
            internal = replace(internal, repeat=_kept(repeat))
    if any(not i.exit.free and not i.members_changed for i in response.incidents):
        internal = replace(internal, reached=current_position(context))
    if repeats or internal is not response.internal:
        return replace(response, internal=internal, repeats=repeats)
    return response


def _with_cause(attempts: Attempts, before: Attempts, name: str, repeat: Repeat) -> Attempts:
    """The attempt that this replica has just ended, if it has ended one, with its cause."""
    for index, attempt in enumerate(attempts):
        is_new = "endTime" in attempt and attempt not in before
        if is_new and attempt.get("replica") == name:
            return (
                *attempts[:index],
                {**attempt, **repeat.attempt_fields()},
                *attempts[index + 1 :],
            )
    return attempts


def _fresh(context: ReconcileContext, response: RestartDecision) -> list[Replica]:
    """What has failed just now: for each incident its cause, and each that is not restarted."""
    causes = [i.cause for i in response.incidents if not i.members_changed and _failed(i.cause)]
    return causes + [r for r in response.failed_for_good if not _is_known(context, r)]


def _is_known(context: ReconcileContext, replica: Replica) -> bool:
    """Whether it had failed for good before: of some, the cause is awaited after they are told."""
    if _is_alone(context, replica):
        return replica.entry is not None and replica.entry["phase"] == "Failed"
    return context.internal.is_lost(replica.name)


def _failed(replica: Replica) -> bool:
    return replica.state is State.FAILED or replica.state is State.TAKEN


def _next(context: ReconcileContext, replica: Replica) -> Repeat:
    """With this failure: how often in a row it has been so."""
    alone = _is_alone(context, replica)
    before = context.internal.record(replica.name).repeat if alone else context.internal.repeat
    reached = current_position(context)
    if before is not None and _has_gained(context, replica, before, reached, alone=alone):
        before = None
    end = replica.exit
    if end is not None and end.free:  # says nothing of the program
        return before or Repeat("", 0)
    text, key = describe_lasting_cause(end)
    if not key:
        return Repeat("", 0)
    times = before.times + 1 if before is not None and before.key == key else 1
    return Repeat(key, times, text, reached)


def _has_gained(
    context: ReconcileContext,
    replica: Replica,
    before: Repeat,
    reached: TrainingPosition,
    *,
    alone: bool,
) -> bool:
    """Whether what has just ended had got further than what ended before; a long run may have,
    where nothing tells."""
    if (further := reached.is_further_than(before.reached)) is not None:
        return further
    pod = replica.pod
    since = (pod.started if pod is not None else None) if alone else context.internal.ready_at
    return restart_backoff.was_long_healthy_run(since, context.now, context.settings)


def _is_alone(context: ReconcileContext, replica: Replica) -> bool:
    return context.workload.scope is Scope.REPLICA or replica.type.restarts_alone


def _kept(repeat: Repeat) -> Repeat | None:
    return replace(repeat, text="") if repeat.times else None
