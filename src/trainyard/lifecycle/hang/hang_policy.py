"""A job that hangs: what its ranks' reports come to in this pass, and what follows (decision 225).

A finding counts once it has held for `hang.afterSeconds`. Everything is computed anew from the last
reports, each of which says since when; so nothing is lost when the controller changes hands but the
reports, which come again within half a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from trainyard.kinds.shared.reasons import (
    HUNG,
    ConditionReason,
    ConditionType,
    EventReason,
    Phase,
)
from trainyard.kinds.shared.workload import FailureAction, HangAction, HangPolicy
from trainyard.kube.resources import CONFIG_MAPS
from trainyard.lifecycle import texts
from trainyard.lifecycle.actions import Create, Event
from trainyard.lifecycle.hang import hang_detector, hang_texts
from trainyard.lifecycle.hang.hang_detector import Finding
from trainyard.lifecycle.hang.rank_reports import (
    APART,
    NEVER_MET,
    STOPPED,
    STUCK,
    RankReport,
)
from trainyard.lifecycle.policy import NOTHING, PolicyResult
from trainyard.lifecycle.reconcile_context import ReconcileContext, Verdict
from trainyard.lifecycle.replica_state import Exit, Ruling, State
from trainyard.lifecycle.replica_view import Replica
from trainyard.lifecycle.status.conditions import Conditions
from trainyard.lifecycle.status.status_builder import StatusBuilder
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import parse

RULE = "runPolicy.hang"
_REASONS = {
    Finding.HUNG: ConditionReason.HUNG,
    Finding.MISMATCH: ConditionReason.COLLECTIVES_DIFFER,
    Finding.STOPPED: ConditionReason.RANK_STOPPED,
    Finding.SUSPECT: ConditionReason.HANG_SUSPECTED,
    Finding.BUSY: ConditionReason.WAITS_FOR_BUSY,
    Finding.SLEEPS: ConditionReason.SLEEPS,
}


@dataclass(frozen=True, slots=True)
class HangObservation:
    """What the ranks do: those that report for the pods of this attempt, a finding, and whether it
    has lasted long enough to be reported, and else when it will have."""

    ranks: tuple[RankReport, ...] = ()
    verdict: hang_detector.HangVerdict | None = None
    is_due: bool = False
    due: datetime | None = None
    is_partial: bool = False
    """Whether another controller has reported a hang in this attempt, of which this one has too few
    reports."""

    @property
    def is_hung(self) -> bool:
        """Whether it may be acted on."""
        return self.is_due and self.verdict is not None and self.verdict.finding.is_hang

    @property
    def text(self) -> str:
        """The finding in words."""
        return hang_texts.describe(self.verdict) if self.verdict is not None else ""


NOT_OBSERVED = HangObservation()


def evaluate(context: ReconcileContext, status: StatusBuilder) -> PolicyResult:
    """Report a hang, keep its evidence, and end the attempt or the job where its policy says so."""
    observation = observe(context)
    status.events += report_hang(observation, status.conditions)
    return PolicyResult(
        verdict=hang_verdict(context, observation),
        wake_at=observation.due,
        context=fail_culprit(context, observation),
        evidence=evidence_to_create(context, observation),
    )


def observe(context: ReconcileContext) -> HangObservation:
    """What the reports come to."""
    policy = context.workload.hang
    if policy is None or context.workload.debug:
        return NOT_OBSERVED
    by_pod = {replica.name: replica for replica in context.view.replicas}
    ranks = tuple(
        _as_seen_by_node(rank, by_pod[rank.pod])
        for rank in _current_ranks(context)
        if rank.kind not in NEVER_MET  # of which nothing is waited for
    )
    if any(_has_yet_to_start(replica) for replica in context.view.not_running):
        return HangObservation(ranks)
    if _is_partial(context, ranks):
        return HangObservation(ranks, is_partial=True)
    if not ranks:
        return HangObservation()
    gone = frozenset(each.short_name for each in context.view.not_running if each.ended)
    verdict = hang_detector.detect_hang(
        ranks, context.now, gone=gone, serves=policy.may_answer_requests
    )
    return _with_due_time(ranks, verdict, policy, context.now)


def _current_ranks(context: ReconcileContext) -> Iterator[RankReport]:
    """Those that report for the pods of this attempt."""
    by_pod = {replica.name: replica for replica in context.view.replicas}
    return (r for r in context.observed.reports.ranks if _is_current(by_pod.get(r.pod), r))


def report_ranks_apart(context: ReconcileContext, status: StatusBuilder) -> PolicyResult:
    """Warn of a job whose ranks train, or have trained, without each other (decision 364).

    That looks like success, so it is told as soon as it shows, once.
    """
    policy, conditions = context.workload.hang, status.conditions
    if policy is None or context.workload.debug:
        return NOTHING
    ranks = {rank.kind in NEVER_MET: rank for rank in _current_ranks(context)}
    has_succeeded = context.internal.ended == Phase.SUCCEEDED
    reason, text = ConditionReason.NEVER_MET, ""
    if doubles := _current_doubles(context):
        reason = ConditionReason.GROUPS_APART
        text = hang_texts.ranks_in_separate_groups(*doubles)
    elif list(ranks) == [True] and (has_succeeded or ranks[True].kind == APART):
        # Ranks that nobody launched may share work by their numbers: torch's, not those of others.
        is_meant = policy.launched or ranks[True].library in ("mpi4py", "jax")
        has_others = is_meant and ranks[True].size > 1
        text = hang_texts.ranks_never_met(ranks[True]) if has_others else ""
    if not text:
        if False in ranks:  # they have met since
            conditions.drop(ConditionType.RANKS_APART)
        return NOTHING
    if not conditions.has(ConditionType.RANKS_APART):
        status.events.append(Event("Warning", EventReason.RANKS_APART.value, text))
    conditions.set(ConditionType.RANKS_APART, True, reason, text)
    return NOTHING


def _current_doubles(context: ReconcileContext) -> tuple[RankReport, RankReport] | None:
    """Two of the present pods that are the same rank, by the replicas' names; None in a job whose
    replicas do not need each other."""
    doubles = context.observed.reports.doubles
    if context.workload.min_running_replicas < 2:
        return None
    by_pod = {replica.name: replica for replica in context.view.replicas}
    if doubles is None or not all(_is_current(by_pod.get(rank.pod), rank) for rank in doubles):
        return None
    one, other = (replace(rank, pod=by_pod[rank.pod].short_name) for rank in doubles)
    return one, other


# A new controller must not take a hang back before all ranks have reported to it (decision 313).
def _is_partial(context: ReconcileContext, ranks: tuple[RankReport, ...]) -> bool:
    before = Conditions(context.before.get("conditions") or (), context.now)
    since, ready = (
        parse(before.get(ConditionType.HUNG).get("lastTransitionTime")),
        context.internal.ready_at,
    )
    if not before.is_true(ConditionType.HUNG) or since is None or ready is None or since < ready:
        return False
    is_whole = bool(ranks) and len({rank.rank for rank in ranks}) >= hang_detector.world_size(ranks)
    return not is_whole and all(rank.kind in STUCK for rank in ranks)


def _with_due_time(
    ranks: tuple[RankReport, ...],
    verdict: hang_detector.HangVerdict | None,
    policy: HangPolicy,
    now: datetime,
) -> HangObservation:
    if verdict is None:
        return HangObservation(ranks)
    due = verdict.since + timedelta(seconds=policy.after_seconds)
    return HangObservation(ranks, verdict, now >= due, due if now < due else None)


def _is_current(replica: Replica | None, rank: RankReport) -> bool:
    """Whether a report is of the replica's present pod."""
    return replica is not None and replica.pod is not None and replica.pod.attempt == rank.attempt


def _as_seen_by_node(rank: RankReport, replica: Replica) -> RankReport:
    """By the replica's name; stopped, if its node says so."""
    rank, pod = replace(rank, pod=replica.short_name), replica.pod
    if pod is None or pod.stopped_since is None or rank.pid not in pod.stopped:
        return rank
    return replace(rank, kind=STOPPED, since=pod.stopped_since)


def _has_yet_to_start(replica: Replica) -> bool:
    """Whether a replica has yet to start, so that others may well wait for it."""
    return not replica.ended


def fail_culprit(context: ReconcileContext, observation: HangObservation) -> ReconcileContext:
    """The same with the replica that is to blame as failed, where a hang ends the attempt."""
    policy = context.workload.hang
    if policy is None or policy.action is not HangAction.RESTART or not observation.is_hung:
        return context
    # It starts again whatever the restart policy says of failures, which this is none of. Without a
    # time, as of a launch that took too long: any other failure goes before it.
    ruling = Ruling(FailureAction.RESTART, RULE, is_cause=True, by_code=False)
    end = Exit(reason=HUNG, message=observation.text, ruling=ruling)
    failed = _replica_to_blame(context, observation)._replace(state=State.FAILED, exit=end)
    return context.with_replicas({failed.name: failed})


def report_hang(observation: HangObservation, conditions: Conditions) -> tuple[Event, ...]:
    """Put it into the condition; what events go with that."""
    before = conditions.get(ConditionType.HUNG)
    verdict = observation.verdict
    if observation.is_partial:
        return ()
    if verdict is None or not observation.is_due:
        if why := next((rank.unobserved for rank in observation.ranks if rank.unobserved), ""):
            return _report_unobserved(why, conditions)
        if before and before.get("reason") != ConditionReason.NONE:
            conditions.set(
                ConditionType.HUNG, False, ConditionReason.NONE, hang_texts.RANKS_ADVANCE
            )
        return ()
    reason, finding = _REASONS[verdict.finding], verdict.finding
    conditions.set(ConditionType.HUNG, finding.is_hang, reason, observation.text)
    if before.get("reason") == reason:
        return ()
    kind = EventReason.HUNG if finding.is_hang else EventReason.WAITING_RANKS
    worry = finding.is_hang or finding is Finding.SUSPECT
    text = hang_texts.event_text(observation.text)
    return (Event("Warning" if worry else "Normal", kind.value, text),)


def _report_unobserved(why: str, conditions: Conditions) -> tuple[Event, ...]:
    """Say once that there is nothing to know of collectives; a hang that was told is over."""
    is_known = conditions.get(ConditionType.HUNG).get("reason") == ConditionReason.NOT_OBSERVED
    text = hang_texts.collectives_not_observed(why)
    conditions.set(ConditionType.HUNG, False, ConditionReason.NOT_OBSERVED, text)
    return () if is_known else (Event("Normal", EventReason.NOT_OBSERVED.value, text),)


def evidence_to_create(
    context: ReconcileContext, observation: HangObservation
) -> tuple[Create, ...]:
    """Where the stacks and collectives of all ranks are kept: once for each attempt."""
    policy = context.workload.hang
    name = evidence_name(context.workload.base, context.internal.attempt)
    known = any(o.resource == CONFIG_MAPS and o.name == name for o in context.observed.owned)
    if policy is None or known or not observation.is_hung:
        return ()
    data = {"finding": observation.text, "stacks": hang_texts.format_stacks(observation.ranks)}
    return (Create(CONFIG_MAPS, name, partial(policy.record, name, data)),)


def evidence_name(base: str, attempt: int) -> str:
    """The ConfigMap with what was found of an attempt that hung."""
    return f"{base}-hang-{attempt}"


def hang_verdict(context: ReconcileContext, observation: HangObservation) -> Verdict | None:
    """The end of the job, where a hang is that."""
    policy = context.workload.hang
    if policy is None or policy.action is not HangAction.FAIL or not observation.is_hung:
        return None
    workload, replica = context.workload, _replica_to_blame(context, observation)
    message = texts.hung(workload, observation.text)
    cause = replica._replace(exit=Exit(reason=HUNG, message=observation.text))
    return Verdict(False, ConditionReason.HUNG, message, cause)


def _replica_to_blame(context: ReconcileContext, observation: HangObservation) -> Replica:
    """The replica of the culprit, or of one that waits where that is nobody's fault, or gone."""
    found = observation.verdict
    assert found is not None
    blamed = found.culprit if found.culprit is not None and not found.is_gone else found.waiting[0]
    return next(r for r in context.view.replicas if r.short_name == blamed.pod)
