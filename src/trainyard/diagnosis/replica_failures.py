"""Describes how a replica failed: by itself, by a probe, or before it started."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from trainyard.client.job_events import event_time
from trainyard.diagnosis import exit_meanings, first_failure, full_volumes, missing_ranks
from trainyard.diagnosis.first_failure import FailedReplica, Grade
from trainyard.diagnosis.log_meanings import COLLECTIVES_DIFFER, Reading
from trainyard.diagnosis.situation import Object, Situation
from trainyard.evidence.launcher_reports import (
    count_lines,
    count_processes,
    own_lines,
    without_other_ranks,
)
from trainyard.evidence.start_failures import never_starts
from trainyard.evidence.tracebacks import RaisedException
from trainyard.kinds.shared.reasons import GIVEN_UP, without_torchrun_report
from trainyard.kinds.shared.workload import RESTARTABLE_CODES
from trainyard.kube.embedded_contract import HIDDEN_OUTPUT
from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import parse

_PROBE = re.compile(r"failed (liveness|startup) probe")
_HOOK_EVENT = "FailedPostStartHook"
_HOOK_CODE = re.compile(r"(?:ended|exited) with (\d+)")
"""In the words of our node, and of the kubelet."""
_HOOK_ADVICE = ("correct what lifecycle.postStart of the container runs",)
_RAISE_LIMIT = "raise resources.limits.memory of the container, or "
"""No advice where nobody has set one."""
_MOST_PLACES = 4
"""Of other ranks that are named."""
_PROBE_ADVICE = {
    "liveness": "raise failureThreshold, periodSeconds or timeoutSeconds of its livenessProbe",
    "startup": "give it more time: failureThreshold times periodSeconds of its startupProbe",
}


_HIDDEN = "what it wrote is for those who may read the logs of namespace {namespace}"
_ASK = ("ask whoever submitted it",)


@dataclass(frozen=True, slots=True)
class ReplicaFailure:
    """The end of one attempt, by the replica that caused it."""

    replica: str
    """Whose container ended."""
    who: str
    """Who is to blame: the rank, if a launcher names it, the replica, and its container if that is
    not the training container."""
    code: int | None
    ending: str
    """`exit code 3`, or the reason where there is no code."""
    reading: Reading
    output: str
    is_read: bool = True
    """Whether its log or last words were there to be read."""
    evidence: tuple[str, ...] = ()
    logs: str = ""
    """Options of `trainyard logs` that show what it wrote."""
    is_accident: bool = False
    """Whether a restart might well have helped."""
    is_taken: bool = False
    """Whether the cluster took the pod away, which was well."""
    never_starts: bool = False
    """Whether another try would end the same way (decision 102)."""
    ruling: str = ""
    """Which rule of `podFailurePolicy` decided, and what."""
    raised: RaisedException | None = None
    """The exception that ended it."""
    last_lines: tuple[str, ...] = ()
    """Its last lines, those of launchers left out, where no exception ended it."""
    pod: str = ""
    log: str = ""
    """The file of its log on this machine, where there is one."""
    blamed: str = ""
    """The replica that is to blame: another one than `replica` where that one launched it."""
    same_failures: int = 0
    """How many other processes ended by the same exception."""
    processes: int = 1
    """How many each replica had."""
    grades: Mapping[str, Grade] = field(default_factory=dict)
    """How much the ends of all tell that have ended with it, by pod."""
    last_seen: str = ""
    """Where the rank stood by its last report, where no word of it tells."""
    repeated: int = 0
    """How many attempts in a row have ended so, with nothing gained in between (decision 229)."""


def failure_of_attempt(situation: Situation, failure: Object) -> ReplicaFailure:
    """What ended an attempt of `status.attempts` that a replica ended."""
    suspect, everyone = first_failure.find_first_failure(situation, failure)
    found = _failure_of(situation, failure, suspect, everyone)
    missing = missing_ranks.find_missing_rank(situation, suspect, everyone)
    if missing is None:
        return found
    found = replace(found, reading=missing.reading)
    if missing.rank is None:
        return found
    where = f" on {missing.replica}" if missing.replica else ""
    blamed = missing.replica or found.blamed
    return replace(found, who=f"rank {missing.rank}{where}", blamed=blamed)


def _failure_of(
    situation: Situation, failure: Object, suspect: FailedReplica, everyone: list[FailedReplica]
) -> ReplicaFailure:
    """How the replica failed that is suspected to have ended the attempt."""
    name = suspect.pod
    replica = situation.replica(name)
    # One that was given up did not end of itself.
    of_pod = suspect.reason not in GIVEN_UP
    lines = suspect.tail.lines
    if suspect.raised is None:  # what other ranks say is of their own ends
        lines = without_other_ranks(lines, suspect.blamed)
    is_hidden = HIDDEN_OUTPUT in lines
    output = "" if is_hidden else without_torchrun_report("\n".join(lines))
    probe = _failed_probe(situation, name, failure)
    code, reason = suspect.code, suspect.reason
    reading, evidence = probe or (
        exit_meanings.explain_exit(code, reason, output, suspect.raised),
        (),
    )
    if reading.what.startswith(COLLECTIVES_DIFFER):
        others = [each for each in everyone if each.pod != name and each.raised is not None]
        reading = _with_places_of(others, situation, reading)
    reading = full_volumes.name_full_volume(situation, name, reading, suspect.raised)
    if is_hidden and reading.is_guess:
        reading = Reading(_HIDDEN.format(namespace=situation.job.namespace), _ASK)
    if not _limits_memory(situation.job.obj.get("spec")):
        reading = replace(
            reading, advice=tuple(text.removeprefix(_RAISE_LIMIT) for text in reading.advice)
        )
    beside, is_init = _container_beside(situation, name) if of_pod else ("", False)
    its = f"{replica}'s {'init ' if is_init else ''}container {beside}"
    blamed = _blamed(situation, suspect, replica)
    raised = None if is_init or probe else suspect.raised
    return ReplicaFailure(
        replica=replica,
        who=its if beside else _blamed_name(suspect, blamed, raised),
        code=code,
        ending=f"exit code {code}" if code is not None else reason or "taken away",
        reading=reading,
        output=output,
        is_read=bool(output) or situation.pod(name) is not None or name in situation.logs,
        evidence=evidence,
        logs=f" --replica {replica}" + (f" -c {beside}" if beside else ""),
        is_accident=code in RESTARTABLE_CODES and reason != "OOMKilled" and probe is None,
        is_taken=code is None and exit_meanings.is_taken(reason),
        never_starts=never_starts(reason, output) != "",
        ruling=str(failure.get("message") or ""),
        raised=raised,
        last_lines=() if raised or is_hidden or not of_pod else own_lines(lines),
        pod=name,
        log=suspect.tail.path,
        blamed=blamed,
        grades={each.pod: each.grade for each in everyone},
        processes=count_processes(suspect.tail.lines),
        last_seen=str(failure.get("lastSeen") or ""),
        repeated=int(failure.get("repeated") or 0),
        same_failures=_count_same_failures(suspect, everyone, raised),
    )


def _with_places_of(
    others: Sequence[FailedReplica], situation: Situation, reading: Reading
) -> Reading:
    """With the lines in which the others were, of which none need be the wrong one."""
    places = {
        f"{situation.replica(each.pod)} was in {each.raised.place.where}"
        for each in others
        if each.raised is not None and each.raised.place is not None
    }
    return replace(reading, what="; ".join([reading.what, *sorted(places)[:_MOST_PLACES]]))


def _limits_memory(part: Any) -> bool:
    """Whether a part of a job limits the memory of a container."""
    if isinstance(part, dict) and "memory" in (part.get("limits") or ()):
        return True
    inside = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return any(map(_limits_memory, inside))


def _blamed(situation: Situation, suspect: FailedReplica, replica: str) -> str:
    """The replica of the rank that a launcher blames; else the one that failed."""
    if suspect.blamed is None:
        return replica
    named = situation.replica(suspect.blamed.host.partition(".")[0])
    known = {situation.replica(str(each.get("name"))) for each in situation.job.replicas}
    return named if named in known else replica


def _blamed_name(suspect: FailedReplica, blamed: str, raised: RaisedException | None) -> str:
    rank = suspect.blamed.rank if suspect.blamed else None
    if raised is not None and raised.rank is not None:
        rank = raised.rank
    return blamed if rank is None else f"rank {rank} on {blamed}"


def _count_same_failures(
    suspect: FailedReplica, everyone: list[FailedReplica], raised: RaisedException | None
) -> int:
    """How many other processes raised the same, or ended alike with the same last line."""
    if raised is not None:
        same = (each for each in everyone if each.raised and each.raised.text == raised.text)
        return sum(each.same_failures() for each in same) - 1
    last = own_lines(suspect.tail.lines)[-1:]
    same = (each for each in everyone if each.raised is None and each.code == suspect.code)
    return max(sum(count_lines(each.tail.lines, *last) for each in same) - 1, 0) if last else 0


def _container_beside(situation: Situation, pod_name: str) -> tuple[str, bool]:
    """The container that failed if it is not the training container, and whether it is an init
    container; empty if it was that one."""
    job, pod = situation.job, situation.pod(pod_name)
    if pod is None:
        init = job.failed_init_container(situation.replica(pod_name))
        return init, bool(init)
    failed = job.failed_container(pod)
    if failed is None or failed.name == job.training_container(pod):
        return "", False
    return failed.name, failed.name in pod.init_container_names


def _failed_probe(
    situation: Situation, name: str, failure: Object
) -> tuple[Reading, tuple[str, ...]] | None:
    """The probe or hook that had the container ended, and how it had failed."""
    began = parse(failure.get("startTime"))
    for event in situation.events_about(name, "Killing", _HOOK_EVENT):
        text = str(event.get("message") or "")
        # Events have whole seconds, attempts have not.
        if began is not None and event_time(event) < began.replace(microsecond=0):
            continue
        if event.get("reason") == _HOOK_EVENT:
            code = _HOOK_CODE.search(text)
            how = f" (exit code {code[1]})" if code else ""
            return Reading(f"its postStart hook failed{how}, so it was ended", _HOOK_ADVICE), (
                text,
            )
        if (found := _PROBE.search(text)) is None:
            continue
        kind = found[1]
        messages = (str(e.get("message") or "") for e in situation.events_about(name, "Unhealthy"))
        last_lines = tuple(text for text in messages if text.lower().startswith(kind))[:1]
        advice = (f"{_PROBE_ADVICE[kind]}, or mend what it asks for",)
        return Reading(f"its {kind} probe failed, so it was ended", advice), last_lines
    return None
