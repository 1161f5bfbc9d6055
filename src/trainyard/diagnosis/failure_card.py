"""The failure card: who failed first, the exception and its place, cause, remedy, and a command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trainyard.client.pod_views import PodView
from trainyard.diagnosis import replica_failures
from trainyard.diagnosis.finished_jobs import failed
from trainyard.diagnosis.first_failure import Grade
from trainyard.diagnosis.replica_failures import ReplicaFailure
from trainyard.diagnosis.situation import Object, Situation
from trainyard.kinds.shared.reasons import ENDED_FROM_OUTSIDE, STOPPED, ConditionReason, Phase
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import parse

_STOPPED = ("Running", "Unknown", "Deleted")
"""Phases of replicas that a failure of another one has stopped, or will."""
_EXIT_WITH_MESSAGE = 1
"""Of `sys.exit("words")`, which Python writes last; another code is told of before, or never."""
_NO_REPLICA = (ConditionReason.INVALID_SPEC, *ENDED_FROM_OUTSIDE)


@dataclass(frozen=True, slots=True)
class FailureCard:
    """Why a job failed, in a few lines; what does not apply is empty."""

    job: str
    """Kind and name."""
    outcome: str
    """`Failed after 4.9 s, 2 restarts`."""
    reason: str
    """The exception with its message, or else what happened, in words."""
    who: str = ""
    """Who is to blame: `rank 1 on worker-0`, `worker-0`, `worker-0's init container fetch`."""
    replica: str = ""
    """The replica of these."""
    ending: str = ""
    """`exit code 1`, with a reason of the container's if it has one."""
    peers: str = ""
    """What became of the others: `3 peers were stopped because of it`."""
    place: str = ""
    """Where it was raised in the user's source: `train.py:12 in main`."""
    source: str = ""
    """That line."""
    cause: str = ""
    """What the reason means, where it does not say so itself."""
    remedy: str = ""
    command: str = ""
    """A command with which to go on."""
    log: str = ""
    """The file on this machine that has the log of the replica."""


def failure_card_of(situation: Situation) -> FailureCard | None:
    """The card of a job that has failed; None of any other."""
    if situation.job.phase != Phase.FAILED:
        return None
    failure = situation.job.last_failure
    reason = situation.job.condition("Failed").get("reason")
    is_hang = (failure or {}).get("reason") == ConditionReason.HUNG
    if not failure or is_hang or reason in _NO_REPLICA:
        return _job_card(situation)
    return _replica_card(situation, replica_failures.failure_of_attempt(situation, failure))


def _job_card(situation: Situation) -> FailureCard:
    """No replica is to blame."""
    cause = next(iter(failed(situation)))
    is_command = [text.startswith("`trainyard ") for text in cause.advice]
    commands = [text for text, is_one in zip(cause.advice, is_command, strict=True) if is_one]
    others = [text for text, is_one in zip(cause.advice, is_command, strict=True) if not is_one]
    return FailureCard(
        job=_name(situation),
        outcome=_outcome(situation),
        reason=cause.what,
        cause=(*cause.evidence, "")[0],
        remedy=(*others, "")[0],
        command=commands[0].split("`")[1]
        if commands
        else f"trainyard explain {situation.job.name}",
    )


def _replica_card(situation: Situation, death: ReplicaFailure) -> FailureCard:
    raised = death.raised
    place = raised.place if raised else None
    reason, cause = _reason(death)
    exit_reason = situation.exit_reason(death.pod) if death.code is not None else ""
    return FailureCard(
        job=_name(situation),
        outcome=_outcome(situation),
        reason=reason,
        who=death.who,
        replica=death.blamed,
        ending=f"{death.ending}, {exit_reason}"
        if exit_reason and exit_reason != death.ending
        else death.ending,
        peers=_peers(situation, death),
        place=place.where if place else "",
        source=place.source if place else "",
        cause=cause,
        remedy=(*death.reading.advice, *_fallback_advice(death))[0],
        command=f"trainyard logs {situation.job.name}{death.logs}",
        log=death.log,
    )


def _reason(death: ReplicaFailure) -> tuple[str, str]:
    """The reason, and what it means if that is to be said."""
    raised, reading = death.raised, death.reading
    if raised is None:
        if not reading.is_guess:
            return reading.what, death.last_seen
        if death.last_lines:
            return _last_sentence(death.last_lines), _meaning_of_last_lines(death)
        why = ", and wrote nothing of why" if death.is_read else "; its log went with its pod"
        return f"it ended with {death.ending}{why}", death.last_seen
    cause = "" if raised.text in reading.what else reading.what
    if not cause and raised.root is not None:
        at = f" ({raised.root.place.where})" if raised.root.place else ""
        cause = f"it followed from {raised.root.text}{at}"
    if not cause and raised.worker:
        cause = f"it was raised in {raised.worker}"
    return raised.text, cause


def _meaning_of_last_lines(death: ReplicaFailure) -> str:
    """What the last line of a log is, where no exception and no signal ended the program."""
    if death.code == _EXIT_WITH_MESSAGE:
        return f"with these words its program ended ({death.ending})"
    return f"these are its last words; none of them says why it ended with {death.ending}"


def _last_sentence(last_lines: tuple[str, ...]) -> str:
    """The last line, with the one that it goes on from where it is indented."""
    first = len(last_lines) - 1
    while first > 0 and last_lines[first].startswith(" "):
        first -= 1
    return " ".join(line.strip() for line in last_lines[first:])


def _fallback_advice(death: ReplicaFailure) -> tuple[str, ...]:
    if death.raised is None and death.reading.is_guess and not death.last_lines:
        if not death.is_read:
            return ("read its log where the logs of pods that are gone are kept, if they are",)
        return (f"have the program say why before it ends with {death.ending}",)
    return ("look at what it wrote before",)


def _peers(situation: Situation, death: ReplicaFailure) -> str:
    """What became of the other processes; where it is not known how many these are, of replicas."""
    if death.same_failures:
        others = (
            "another process"
            if death.same_failures == 1
            else f"{death.same_failures} other processes"
        )
        return f"{others} failed alike"
    ends = Counter({Grade.STOPPED: death.processes - 1})
    for grade in _ends_of_others(situation, death):
        ends[grade] += death.processes
    followed, alone = ends[Grade.STOPPED] + ends[Grade.CONSEQUENCE], ends[Grade.CAUSE]
    counts = []
    if followed:
        were = "ended" if ends[Grade.CONSEQUENCE] else "was stopped"
        if followed > 1 and not ends[Grade.CONSEQUENCE]:
            were = "were stopped"
        counts.append(f"{_count(followed)} {were} because of it")
    if alone:
        counts.append(f"{_count(alone)} failed too")
    return ", ".join(counts)


def _count(peers: int) -> str:
    return "1 peer" if peers == 1 else f"{peers} peers"


def _ends_of_others(situation: Situation, death: ReplicaFailure) -> Iterator[Grade]:
    """How the other replicas ended that train, of those that ended no earlier than the job."""
    kind = death.blamed.rpartition("-")[0]
    for each in situation.job.replicas:
        pod = str(each.get("name"))
        name, phase = situation.replica(pod), _phase(each)
        trains = name.rpartition("-")[0] == kind or not situation.job.kind.launches_over_ssh
        if name == death.blamed or not trains:
            continue
        found = situation.pod(pod)
        # A pod has a reason of its own where somebody else ended it, as the end of its job does.
        by_others = found is not None and bool(found.status.get("reason"))
        if phase == "Deleted" and not each.get("uid"):  # it awaited its next start
            if pod in death.grades and not by_others:
                yield death.grades[pod]
        elif each.get("reason") == STOPPED or by_others:
            yield Grade.STOPPED
        elif phase in _STOPPED:
            grade = death.grades.get(pod, Grade.STOPPED)
            is_asked = phase == "Deleted" or (found is not None and found.deleting_since)
            is_answer = grade is Grade.CAUSE and is_asked and _ended_after_job(situation, found)
            yield Grade.STOPPED if is_answer else grade
        elif phase == Phase.FAILED:
            yield death.grades.get(pod, Grade.CAUSE)


def _phase(entry: Object) -> str:
    """Its phase; of one that clean-up deleted after its end, how it had ended."""
    if entry.get("phase") != "Deleted":
        return str(entry.get("phase"))
    if entry.get("reason"):
        return Phase.FAILED
    codes = [c.get("exitCode") for c in entry.get("containers") or () if "role" not in c]
    return Phase.SUCCEEDED if codes and not any(code != 0 for code in codes) else "Deleted"


def _ended_after_job(situation: Situation, pod: PodView | None) -> bool:
    """Whether its container ended when the job had, and all were stopped."""
    failed = situation.job.failed_container(pod) if pod else None
    ended = parse(failed.ended.get("finishedAt")) if failed else None
    end_of_job = parse(situation.job.status.get("completionTime"))
    return ended is not None and end_of_job is not None and ended > end_of_job


def _name(situation: Situation) -> str:
    return f"{situation.job.kind.kind} {situation.job.name}"


def _outcome(situation: Situation) -> str:
    status, count = situation.job.status, situation.job.restarts
    start, end = parse(status.get("startTime")), parse(status.get("completionTime"))
    took = ""
    if start and end and end >= start:  # a clock may jump
        took = f" after {(end - start).total_seconds():.1f} s"
    again = f", {count} restart{'' if count == 1 else 's'}" if count else ""
    repeated = int(situation.job.last_failure.get("repeated") or 0)
    in_vain = f", the last {repeated} failures alike: another will not help" if repeated > 1 else ""
    return f"Failed{took}{again}{in_vain}"
