"""Who is to blame when several replicas end: what failed of itself comes before what followed.

A rank that dies takes its peers with it, which then often say more than it did, and may even end
before it (decision 138).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import IntEnum

from trainyard.client.log_tails import Tail
from trainyard.client.pod_views import ContainerView, PodView
from trainyard.diagnosis.situation import Object, Situation
from trainyard.evidence.launcher_reports import BlamedRank, find_blamed_rank
from trainyard.evidence.secondary_exceptions import is_secondary, reports_child_failure
from trainyard.evidence.tracebacks import RaisedException, find_exceptions, lines_of_roots
from trainyard.kinds.shared.reasons import GIVEN_UP
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import parse

_SIGNAL_BASE = 128
_SIGKILL, _SIGTERM = 137, 143
_MOST_READ = 64
_SAME_MOMENT_SECONDS = 10.0
"""Exceptions that end the processes of one replica come within this; what was survived is older."""
_ANY_END = (_SIGTERM, -15, 134, -6)
"""Threads of gloo abort (SIGABRT) while an interpreter ends that has told its exception."""
_STOPPED_SECONDS = 2.0
"""What is killed this long after a failure was killed because of it."""
_NEVER = datetime.max.replace(tzinfo=UTC)


class Grade(IntEnum):
    """How much the end of a replica tells, the best first."""

    CAUSE = 0
    CONSEQUENCE = 1
    """It says that it lost a peer."""
    STOPPED = 2
    """It was asked to end."""


@dataclass(frozen=True, slots=True)
class FailedReplica:
    """How one replica ended, and what it said of that."""

    pod: str
    code: int | None
    reason: str
    tail: Tail
    raised: RaisedException | None
    """The exception that ended it."""
    blamed: BlamedRank | None
    """The rank that its launcher says failed first."""
    grade: Grade
    at: datetime
    """When it failed, by its log or else its container; `_NEVER` where nothing tells."""

    def same_failures(self) -> int:
        """How many of its processes ended by the same exception."""
        if self.raised is None:
            return 0
        same = (each for each in find_exceptions(self.tail.lines) if each.text == self.raised.text)
        return max(1, sum(not each.is_logged for each in same))


def pods_to_read(situation: Situation) -> list[str]:
    """Pods whose logs tell who ended the last attempt: that which its status names, and those that
    failed, the earliest first; as many as are worth reading."""
    failure = situation.job.last_failure
    ended = sorted(
        (str(failed.ended.get("finishedAt") or "~"), pod.name)
        for pod in situation.pods
        if (failed := situation.job.failed_container(pod)) is not None
    )
    first = [str(failure["replica"])] if failure else []
    return list(dict.fromkeys([*first, *(name for _, name in ended)]))[:_MOST_READ]


def find_first_failure(
    situation: Situation, failure: Object
) -> tuple[FailedReplica, list[FailedReplica]]:
    """Who ended an attempt of `status.attempts` that a replica ended, and all that ended with it.

    It is the replica that the attempt names, unless that one only followed another, or another
    one's log tells of an earlier failure.
    """
    name, began = str(failure["replica"]), parse(failure.get("startTime"))
    named = _from_status(situation, name, failure)
    others = []
    for pod in situation.pods:
        failed = situation.job.failed_container(pod)
        if failed is None or pod.name == name:
            continue
        ended = parse(failed.ended.get("finishedAt"))
        if began is None or ended is None or ended >= began.replace(microsecond=0):
            others.append(_from_pod(situation, pod, failed, named))
    everyone = [named, *others]
    if named.code is None:  # the cluster took it, or something was wrong with it before it ran
        return named, everyone
    better = [each for each in others if (each.grade, each.at) < (named.grade, named.at)]
    better = [each for each in better if each.grade < named.grade or _are_both_timed(each, named)]
    return min(better, key=lambda each: (each.grade, each.at), default=named), everyone


def _are_both_timed(one: FailedReplica, other: FailedReplica) -> bool:
    """Whether the logs of both say when they failed, and not just their containers' ends."""
    return one.raised is not None and other.raised is not None


def _from_status(situation: Situation, name: str, failure: Object) -> FailedReplica:
    """The replica that the status names; its code and reason are the attempt's."""
    code, reason = failure.get("exitCode"), str(failure.get("reason") or "")
    is_own = reason not in GIVEN_UP
    output = situation.last_output(name) if is_own else situation.failure_output
    ended = parse(failure.get("endTime")) or _NEVER
    return _failed_replica(situation, name, code, reason, output, ended)


def _from_pod(
    situation: Situation, pod: PodView, failed: ContainerView, named: FailedReplica
) -> FailedReplica:
    ended = parse(failed.ended.get("finishedAt")) or _NEVER
    found = _failed_replica(
        situation, pod.name, failed.exit_code, failed.reason, failed.termination_message, ended
    )
    is_late = (ended - named.at).total_seconds() > _STOPPED_SECONDS
    if found.code == _SIGKILL and found.raised is None and is_late:
        return replace(found, grade=Grade.STOPPED)
    return found


def _failed_replica(
    situation: Situation, pod: str, code: int | None, reason: str, output: str, ended: datetime
) -> FailedReplica:
    tail = situation.tail_of(pod) or Tail()
    message = [line for line in output.split("\n") if line.strip()]
    if message and message[-1].rstrip("\r").rpartition("\r")[2] not in tail.lines:
        tail = _with_message(tail, message, ended)  # such as why nothing was started
    blamed = find_blamed_rank(tail.lines)
    found = find_exceptions(tail.lines)
    if code is not None and _is_signal(code):
        found = [each for each in found if each.is_native]
    raised = find_final_exception(found, tail)
    if blamed is not None and raised is not None and not _can_explain(raised, blamed.code):
        raised = None
    if raised is not None and code is not None and not _can_explain(raised, code):
        raised = None
    at = parse(tail.time_of(raised.first)) if raised else None
    grade = _grade(code, reason, raised)
    return FailedReplica(pod, code, reason, tail, raised, blamed, grade, at or ended)


def _with_message(tail: Tail, message: list[str], ended: datetime) -> Tail:
    """The log, and below it the lines of a container's message, which come with its end."""
    at = "" if ended == _NEVER else ended.isoformat()
    before = [tail.time_of(index) for index in range(len(tail.lines))]
    return tail._replace(lines=[*tail.lines, *message], times=[*before, *(at for _ in message)])


def _is_signal(code: int) -> bool:
    """Whether a process that ended so was ended by a signal, for which it raised nothing."""
    return code not in _ANY_END and (code < 0 or code > _SIGNAL_BASE)


def _can_explain(raised: RaisedException, code: int) -> bool:
    """Whether a process that ended so can have ended by this: what a signal ended raised nothing,
    and what chose its exit code was not ended by the loss of a peer."""
    if code in _ANY_END:
        return True
    if _is_signal(code):
        return raised.is_native and not is_secondary(raised)
    return code == 1 or not (is_secondary(raised) or reports_child_failure(raised))


def _grade(code: int | None, reason: str, raised: RaisedException | None) -> Grade:
    if code is None or reason not in ("", "Error", "Completed"):
        return Grade.CAUSE
    if raised is not None and not is_secondary(raised) and code != _SIGTERM:
        return Grade.CAUSE
    if code == _SIGTERM:
        return Grade.STOPPED
    return Grade.CAUSE if raised is None else Grade.CONSEQUENCE


def find_final_exception(found: Sequence[RaisedException], tail: Tail) -> RaisedException | None:
    """The exception that ended a replica, of all in its log.

    Those that only tell of a peer or a child, or were only told of, count where there is nothing
    else. Of several at the end of the log, which are of several processes, it is the first.
    """
    roots = lines_of_roots(found)
    left = [each for each in found if each.first not in roots]
    left = [each for each in left if not _is_group_of_others(each, left)]
    if not left:
        return None
    ranks = [(is_secondary(each), each.is_logged, reports_child_failure(each)) for each in left]
    same = [each for each, rank in zip(left, ranks, strict=True) if rank == min(ranks)]
    last = parse(tail.time_of(same[-1].last))
    for each in same:
        at = parse(tail.time_of(each.last))
        if last is None or at is None or (last - at).total_seconds() <= _SAME_MOMENT_SECONDS:
            return each
    return same[-1]


def _is_group_of_others(raised: RaisedException, everyone: Sequence[RaisedException]) -> bool:
    """Whether it is an ExceptionGroup whose members are told too, right below."""
    margin = raised.prefix
    return raised.type.endswith("Group") and any(
        each.first > raised.first and each.prefix.endswith("| ") and len(each.prefix) > len(margin)
        for each in everyone
    )
