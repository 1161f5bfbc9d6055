"""What a pass tells, held against what it had seen, and its parts against each other."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation import check_judges as check_judges  # registers its judges
from tests.simulation import hang_judges as hang_judges
from tests.simulation import launch_judges as launch_judges
from tests.simulation import policies
from tests.simulation import queue_judges as queue_judges
from tests.simulation import rule_judges as rule_judges
from tests.simulation import straggler_judges as straggler_judges
from tests.simulation.judges import judged
from tests.simulation.server import Obj
from tests.simulation.telling import ENDS, Told, texts_of
from tests.simulation.viewer_judges import of_link
from trainyard.schema.times import parse

_END_EVENTS = ("Succeeded", "Failed", "DeadlineExceeded", "InvalidSpec")


def untrue(told: Told, *, times: bool = True) -> Iterator[str]:
    """What a pass says and is not so. Without `times` where somebody has set the clock back."""
    for text in texts_of(told):
        for problem in judged(told, text):
            yield f"{text.place} ({text.reason}) says {text.message!r}: {problem}"
    yield from _of_events(told)
    if "tasks" in told.after:  # an invalid job has no replicas
        yield from _of_conditions(told)
        yield from _of_replicas(told)
        yield from _of_attempts(told)
        yield from of_link(told)
    if times:
        yield from _of_times(told)


def _of_events(told: Told) -> Iterator[str]:
    ends = [event.reason for event in told.events if event.reason in _END_EVENTS]
    if len(ends) != told.ends_now:
        yield f"phase {told.before.get('phase')} to {told.phase}, events of its end: {ends}"
    if ends and (ends[0] == "Succeeded") != (told.phase == "Succeeded"):
        yield f"phase {told.phase}, event {ends[0]}"


def _of_conditions(told: Told) -> Iterator[str]:
    held = {condition["type"]: condition for condition in told.after["conditions"]}
    is_true = {kind for kind, condition in held.items() if condition["status"] == "True"}
    if "Running" in is_true and told.phase != "Running":
        yield f"Running is True, and the phase {told.phase}"
    if "Running" in is_true and not told.well and not _is_unheard(told):
        yield f"Running is True, and none runs: {dict(told.counts)}"
    if ("Completed" in is_true) != (told.phase in ENDS):
        yield f"Completed is {held.get('Completed')}, and the phase {told.phase}"
    if ("Failed" in held) != (told.phase in ENDS):
        yield f"Failed is {held.get('Failed')}, and the phase {told.phase}"
    if ("Failed" in is_true) != (told.phase == "Failed"):
        yield f"Failed is {held.get('Failed')}, and the phase {told.phase}"
    if ("Paused" in is_true) != (told.phase == "Paused"):
        yield f"Paused is {held.get('Paused')}, and the phase {told.phase}"
    if "Hung" in is_true and told.phase == "Paused":
        yield "Hung is True, and it is paused"
    yield from _of_failures(told, is_true, held)
    yield from _of_success(told)
    if told.phase in ENDS:
        words = {(held[t]["reason"], held[t]["message"]) for t in ("Failed", "Completed")}
        if len(words) > 1:
            yield f"two accounts of the end: {words}"


def _is_unheard(told: Told) -> bool:
    """Whether the controller waits to hear how replicas have ended whose pods stay: another has
    heard it, and its status does not tell their last words."""
    if (told.spec.get("runPolicy") or {}).get("restartMode") != "InPlace":
        return False
    holds = told.observed.reports.in_place
    unheard = any(p.name not in holds for p in told.observed.pods if p.phase == "Running")
    return unheard and told.plan.wake_at is not None


def _of_success(told: Told) -> Iterator[str]:
    """A job that needs all its replicas has not succeeded before; an elastic one goes without
    those that it has lost or never got."""
    if not (told.ends_now and told.phase == "Succeeded" and policies.needs_all(told.job)):
        return
    elastic = (told.spec.get("elastic") or {}).get("enabled")
    missing = {"failed", "deleted", "creating"} if elastic else set()
    others = set(told.counts) - missing - {"succeeded"}
    if any(told.counts[phase] for phase in others):
        yield f"it succeeded without all: {dict(told.counts)}"


def _of_failures(told: Told, is_true: set[str], held: dict[str, Obj]) -> Iterator[str]:
    says_so = "ReplicaFailure" in is_true
    if told.failed and not says_so:
        yield f"{told.failed} failed, and ReplicaFailure is {held.get('ReplicaFailure')}"
    all_run = "Running" in is_true and told.well == told.total
    if says_so and (all_run or (told.phase == "Succeeded" and not told.failed)):
        yield f"ReplicaFailure is {held['ReplicaFailure']}, and none has failed"


def _is_kept(told: Told, name: str) -> bool:
    """Whether the replica's end was told before, and stays as it was told."""
    phase = told.entries[name]["phase"]
    return phase in ENDS and told.known.get(name, {}).get("phase") == phase


def _of_replicas(told: Told) -> Iterator[str]:
    """What is told of a replica whose pod was seen."""
    for name, entry in told.entries.items():
        pod = told.pods.get(name)
        if pod is None or entry["uid"] != pod.uid:
            came_late = _is_kept(told, name) and told.goes(name)
            if pod is not None and entry["uid"] and entry["phase"] != "Deleted" and not came_late:
                yield f"{name} is told of a pod that is not there: {entry}"
            continue
        if _is_kept(told, name):
            continue
        codes = [c.exit_code for c in pod.containers if c.exit_code is not None]
        is_told = {
            "Creating": not pod.scheduled,
            "Pending": pod.scheduled and pod.phase in ("Pending", "Running"),
            "Running": pod.phase == "Running" and pod.deleting is None,
            "Succeeded": pod.phase == "Succeeded" or 0 in codes,
            "Failed": pod.phase == "Failed"
            or any(codes)
            or told.gave_up(pod)
            or (pod.deleting is not None and policies.may_charge_losses(told.job)),
            "Unknown": pod.phase == "Unknown" or pod.node in told.observed.lost_nodes,
            "Deleted": True,
        }
        if not is_told[entry["phase"]]:
            yield f"{name} is told as {entry['phase']}, and was seen as {pod}"
        told_codes = [c["exitCode"] for c in entry["containers"] if "exitCode" in c]
        if entry["phase"] not in ("Deleted", *ENDS) and told_codes != codes:
            yield f"{name} is told with exit codes {told_codes}, and was seen with {codes}"


def _of_attempts(told: Told) -> Iterator[str]:
    """An attempt that ends in this pass ended as its replica did."""
    before = {repr(attempt) for attempt in told.before.get("attempts") or ()}
    for attempt in told.after.get("attempts") or ():
        pod, code = attempt.get("replica"), attempt.get("exitCode")
        if repr(attempt) not in before:
            yield from _of_ruling(told, attempt)
        if repr(attempt) in before or pod is None or code is None:
            continue
        inits = [c.name for c in told.pods[pod].containers if c.is_init] if pod in told.pods else []
        if not any(told.ended_with(pod, code, init) for init in ("", *inits)):
            yield f"attempt {attempt}: seen {told.pods.get(pod)}, told {told.known.get(pod)}"


def _of_ruling(told: Told, attempt: Obj) -> Iterator[str]:
    """What the message of an attempt says of a restart follows, or does not."""
    text, goes_on = str(attempt.get("message") or ""), told.phase not in ENDS
    if text.endswith("restarts after this failure") and not goes_on:
        yield f"{text!r}, and the job has ended"
    if text.endswith("its restarts are used up") and goes_on:
        yield f"{text!r}, and the job goes on"


def _of_times(told: Told) -> Iterator[str]:
    after = told.after
    for condition in after.get("conditions") or ():
        moment = parse(condition["lastTransitionTime"])
        if moment is not None and moment > told.now:
            yield f"{condition['type']} is of {moment}, and it is {told.now}"
    start, end = parse(after.get("startTime")), parse(after.get("completionTime"))
    if start is not None and end is not None and end < start:
        yield f"startTime {start}, completionTime {end}"
    for attempt in after.get("attempts") or ():
        began, ended = parse(attempt["startTime"]), parse(attempt.get("endTime"))
        if began is not None and ended is not None and ended < began:
            yield f"attempt {attempt} ends before it starts"
