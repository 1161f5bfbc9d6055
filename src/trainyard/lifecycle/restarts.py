"""What a replica's failure leads to: a restart, or a failure for good.

One incident, one restart: when one rank dies, its peers usually die with it or hang. The first
failure of an attempt ends the attempt, and costs one of the budget; later failures of pods that
belong to an attempt that is over cost nothing. A replica that was taken away (deleted by somebody
else, evicted, lost with its node) is restarted at no cost whatever its policy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from trainyard.kinds.shared.settings import Settings
from trainyard.kinds.shared.workload import ReplicaType, RestartPolicy, Scope, Workload
from trainyard.lifecycle import backoff
from trainyard.lifecycle.ledger import Ledger, Record, ending
from trainyard.lifecycle.outcomes import Exit, State
from trainyard.lifecycle.replicas import Replica, View
from trainyard.schema.times import earliest, parse, render

RESTARTABLE_CODES = frozenset({130, 137, 138, 143})
"""ExitCode: SIGINT, SIGKILL, SIGTERM, and 138, by which a program asks for its restart."""

COMPLETED = "Completed"
"""Reason of a restart after exit 0, under Always."""


@dataclass(frozen=True, slots=True)
class Incident:
    """A restart that was decided upon: `cause` is the replica whose end came first."""

    cause: Replica
    exit: Exit
    restarted: int
    start: datetime


@dataclass(frozen=True, slots=True)
class Response:
    """The account after this pass, replicas that failed for good, and when to look again."""

    ledger: Ledger
    incidents: tuple[Incident, ...] = ()
    lost: tuple[Replica, ...] = ()
    wake_at: datetime | None = None
    bumped: frozenset[str] = field(default_factory=frozenset)
    """Pod names of the replicas that are restarted."""


def respond(
    workload: Workload,
    ledger: Ledger,
    view: View,
    now: datetime,
    settings: Settings,
) -> Response:
    """Decide on everything that ended since the last pass."""
    down = [r for r in view.idle if r.state is State.FAILED or r.state is State.TAKEN]
    again = [r for r in view.idle if runs_again(workload, ledger, r)]
    if workload.scope is Scope.REPLICA:
        due = [_due_again(r, now, settings) if workload.decides else now for r in again]
        ready = [r for r, moment in zip(again, due, strict=True) if moment <= now]
        response = _each(workload, ledger, [*down, *ready], now, settings)
        later = (moment for moment in due if moment > now)
        return replace(response, wake_at=earliest(response.wake_at, *later))
    gone = [r for r in down if ledger.is_lost(r.name)]
    replicas = view.replicas
    if gone:
        down = [r for r in down if not ledger.is_lost(r.name)]
        replicas = [r for r in replicas if not ledger.is_lost(r.name)]
    response = Response(ledger)
    if down:
        down += [_lost_with_node(r) for r in view.idle if r.state is State.UNKNOWN]
        response = _together(workload, ledger, replicas, down, now, settings)
    if not response.bumped and not response.lost:
        response = _each_again(workload, response, again, now, settings)
    return replace(response, lost=(*response.lost, *gone))


def _lost_with_node(replica: Replica) -> Replica:
    """One that cannot be reached when its peers fail is taken for the cause, as if deleted."""
    return replica._replace(exit=Exit(reason="NodeLost", free=True))


def may_restart(workload: Workload, ledger: Ledger, replica: Replica) -> bool:
    """Whether policy and budget allow this replica's end to be followed by a restart."""
    assert replica.exit is not None
    if replica.exit.free:
        return True
    return _policy_allows(replica.type, replica.exit) and _used(workload, ledger, replica) < (
        replica.type.limit
    )


def _policy_allows(replica_type: ReplicaType, end: Exit) -> bool:
    match replica_type.policy:
        case RestartPolicy.NEVER:
            return False
        case RestartPolicy.EXIT_CODE:
            return end.code in RESTARTABLE_CODES
        case _:
            return True


def _used(workload: Workload, ledger: Ledger, replica: Replica) -> int:
    if workload.shared_budget:
        return ledger.backoff
    record = ledger.records.get(replica.name)
    return record.restarts if record else 0


def runs_again(workload: Workload, ledger: Ledger, replica: Replica) -> bool:
    """Under Always an exit 0 is followed by a restart too, unless that exit ends the job."""
    return (
        replica.state is State.SUCCEEDED
        and replica.type.policy is RestartPolicy.ALWAYS
        and workload.restart_after_success
        and replica.key != workload.decides
        and _used(workload, ledger, replica) < replica.type.limit
    )


# Scope Job: one incident for all.


def _together(
    workload: Workload,
    ledger: Ledger,
    replicas: Sequence[Replica],
    down: Sequence[Replica],
    now: datetime,
    settings: Settings,
) -> Response:
    same, fresh = _split(workload, ledger, down, now, settings)
    if same:
        ledger = ledger.join({r.name: r.type.name for r in same}, ledger.attempt)
    bumped = frozenset(r.name for r in same)
    if not fresh:
        return Response(ledger, bumped=bumped)
    cause = _cause(fresh, settings)
    if may_restart(workload, ledger, cause):
        return _restart(workload, ledger, replicas, fresh, cause, now, settings, bumped)
    if wait := _settling(cause, replicas, now, settings):
        return Response(ledger, wake_at=wait, bumped=bumped)
    lost = [r for r in fresh if not may_restart(workload, ledger, r)]
    lost.sort(key=lambda r: r is not cause)
    ledger = ledger.lose(r.name for r in lost)
    response = Response(ledger, bumped=bumped)
    others = [r for r in fresh if not ledger.is_lost(r.name)]
    if others and workload.elastic is not None:
        # An elastic job may go on without those that are lost, and then needs the others.
        left = [r for r in replicas if not ledger.is_lost(r.name)]
        cause = _cause(others, settings)
        response = _restart(workload, ledger, left, others, cause, now, settings, bumped)
    return replace(response, lost=tuple(lost))


def _split(
    workload: Workload,
    ledger: Ledger,
    down: Sequence[Replica],
    now: datetime,
    settings: Settings,
) -> tuple[list[Replica], list[Replica]]:
    """Failures that belong to the incident under way, and others.

    Until all replicas run again, a survivor's failure belongs to it; and so do all failures
    shortly after an elastic job changed its size.
    """
    grace = timedelta(seconds=settings.resize_grace_seconds)
    resizing = ledger.resized_at is not None and now - ledger.resized_at < grace
    under_way = ledger.ready_at is None or resizing
    if not (workload.survivors_stay and under_way):
        return [], list(down)
    same: list[Replica] = []
    fresh: list[Replica] = []
    for replica in down:
        survived = ledger.wanted(replica.name) < ledger.attempt
        (same if survived else fresh).append(replica)
    if resizing and not same:
        # A new pod's own failure in this time is free as well; it gets an attempt of its own.
        fresh = [_freed(replica) for replica in fresh]
    return same, fresh


def _freed(replica: Replica) -> Replica:
    return replica._replace(exit=replace(replica.exit, free=True)) if replica.exit else replica


def _cause(fresh: Sequence[Replica], settings: Settings) -> Replica:
    """The replica that failed first.

    Clocks of nodes and of Kubernetes' whole seconds blur the order. Peers that die along end with
    1, hardly ever with a code that ExitCode restarts; so among failures close together such a
    code tells the cause.
    """
    ordered = sorted(fresh, key=_when)
    first = ordered[0]
    close = _when(first) + settings.incident_settle_seconds
    for replica in ordered:
        end = replica.exit
        if (
            end is not None
            and _when(replica) <= close
            and (end.free or end.code in RESTARTABLE_CODES)
        ):
            return replica
    return first


def _when(replica: Replica) -> float:
    """Seconds, for order. What vanished unseen is taken to have come first, at no cost."""
    end = replica.exit or Exit()
    unknown = float("-inf") if end.free else float("inf")
    return end.at.timestamp() if end.at else unknown


def _settling(
    cause: Replica, replicas: Sequence[Replica], now: datetime, settings: Settings
) -> datetime | None:
    """Under ExitCode: when the cause will be certain, if it is not yet.

    What was seen first need not have happened first, on several nodes.
    """
    at = cause.exit.at if cause.exit else None
    if cause.type.policy is not RestartPolicy.EXIT_CODE or at is None:
        return None
    if all(r.ended for r in replicas):
        return None
    until = at + timedelta(seconds=settings.incident_settle_seconds)
    return until if now < until else None


def _restart(
    workload: Workload,
    ledger: Ledger,
    replicas: Sequence[Replica],
    fresh: Sequence[Replica],
    cause: Replica,
    now: datetime,
    settings: Settings,
    bumped: frozenset[str],
) -> Response:
    end = cause.exit or Exit()
    failures = backoff.failures_in_row(ledger.failures, ledger.ready_at, now, settings)
    start = now + backoff.delay(failures, settings, free=end.free)
    some = workload.survivors_stay and not _in_vain(ledger, failures, now, settings)
    affected = fresh if some else replicas
    ended = ending(now, end.reason, cause.name, end)
    if some:
        ledger = ledger.restart_some({r.name: r.type.name for r in fresh}, ended, start)
    else:
        ledger = ledger.restart_all(ended, start)
    ledger = replace(ledger, failures=failures)
    if not end.free:
        ledger = replace(ledger, backoff=ledger.backoff + 1).count(_per_type(affected))
    return Response(
        ledger,
        incidents=(Incident(cause, end, len(affected), start),),
        bumped=bumped | {r.name for r in affected},
    )


def _in_vain(ledger: Ledger, failures: int, now: datetime, settings: Settings) -> bool:
    """Whether newcomers failed soon after they joined the survivors of an incident.

    An agent of torchrun that gives up closes the rendezvous for good; survivors whose processes
    hang then wait in it for ever, and only a new start of all of them helps.
    """
    grace = timedelta(seconds=settings.resize_grace_seconds)
    return failures > 1 and (ledger.ready_at is None or now - ledger.ready_at < grace)


def _per_type(replicas: Iterable[Replica]) -> Counter[str]:
    """Only replicas that had a pod were restarted."""
    return Counter(r.type.name for r in replicas if r.pod is not None or r.entry is not None)


# Scope Replica: each for itself.


def _each(
    workload: Workload,
    ledger: Ledger,
    ended: Sequence[Replica],
    now: datetime,
    settings: Settings,
) -> Response:
    records = dict(ledger.records)
    ledger = replace(ledger, records=records)  # ours alone: a copy for each would add up
    incidents, lost = [], []
    for replica in sorted(ended, key=_when):
        if may_restart(workload, ledger, replica):
            start, ledger = _restart_one(workload, ledger, records, replica, now, settings)
            incidents.append(Incident(replica, replica.exit or Exit(), 1, start))
        elif replica.state is not State.SUCCEEDED:
            lost.append(replica)
    bumped = frozenset(incident.cause.name for incident in incidents)
    return Response(ledger, tuple(incidents), tuple(lost), bumped=bumped)


def _restart_one(
    workload: Workload,
    ledger: Ledger,
    records: dict[str, Record],
    replica: Replica,
    now: datetime,
    settings: Settings,
) -> tuple[datetime, Ledger]:
    """When it starts anew, and the account; `records` are the ledger's, and are changed."""
    end = replica.exit or Exit()
    record = records.get(replica.name) or Record(ledger.floor)
    healthy_since = replica.pod.started if replica.pod else None
    failures = backoff.failures_in_row(record.failures, healthy_since, now, settings)
    start = now + backoff.delay(failures, settings, free=end.free)
    counted = 0 if end.free else 1
    ledger = ledger.note(last_attempt(ledger, replica, now), start)
    records[replica.name] = Record(record.attempt + 1, record.restarts + counted, failures, start)
    if counted:
        ledger = ledger.count({replica.type.name: 1})
        if workload.shared_budget:
            ledger = replace(ledger, backoff=ledger.backoff + 1)
    return start, ledger


def _each_again(
    workload: Workload,
    response: Response,
    again: Sequence[Replica],
    now: datetime,
    settings: Settings,
) -> Response:
    """Exits 0 under Always, in a job that otherwise restarts together: each costs one, alone."""
    ledger, incidents, wake_at = response.ledger, [], response.wake_at
    for replica in again:
        due = _due_again(replica, now, settings)
        if now < due:
            wake_at = earliest(wake_at, due)
        elif runs_again(workload, ledger, replica):
            closed = ending(now, COMPLETED, replica.name, replica.exit)
            ledger = ledger.restart_some({replica.name: replica.type.name}, closed, now)
            ledger = replace(ledger, backoff=ledger.backoff + 1).count({replica.type.name: 1})
            incidents.append(Incident(replica, replica.exit or Exit(), 1, now))
    return replace(
        response,
        ledger=ledger,
        incidents=(*response.incidents, *incidents),
        bumped=response.bumped.union(incident.cause.name for incident in incidents),
        wake_at=wake_at,
    )


def _due_again(replica: Replica, now: datetime, settings: Settings) -> datetime:
    """When an exit 0 under Always is decided on, where one replica's end is the job's success.

    That one mostly ends at about the same time as the others.
    """
    at = replica.exit.at if replica.exit else None
    return now if at is None else at + backoff.delay(1, settings)


def last_attempt(ledger: Ledger, replica: Replica, now: datetime) -> dict[str, Any]:
    """The attempt that a single replica has ended, as `status.attempts` tells it."""
    end = replica.exit or Exit()
    reason = COMPLETED if end.code == 0 else end.reason or "Error"
    entry: dict[str, Any] = {"number": ledger.wanted(replica.name)}
    if start := _start_of(ledger, replica):
        ended_at = end.at if end.at is not None else now
        entry["startTime"] = render(min(start, ended_at, now))
    return entry | ending(now, reason, replica.name, end)


def _start_of(ledger: Ledger, replica: Replica) -> datetime | None:
    """When a replica's attempt began; of a pod that has gone, when it was to be created."""
    pod, record = replica.pod, ledger.records.get(replica.name)
    if pod is not None and (pod.started or pod.created):
        return pod.started or pod.created
    if record is not None and record.not_before is not None:
        return record.not_before
    return parse(ledger.attempts[-1].get("startTime"))
