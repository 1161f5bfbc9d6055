"""What a pass tells, held against what it had seen, and its parts against each other."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation import failure_policy_judges as failure_policy_judges
from tests.simulation import hang_judges as hang_judges
from tests.simulation import job_policies
from tests.simulation import kueue_judges as kueue_judges
from tests.simulation import launch_judges as launch_judges
from tests.simulation import node_check_judges as node_check_judges  # registers its judges
from tests.simulation import straggler_judges as straggler_judges
from tests.simulation.reconcile_result import ENDS, ReconcileResult, texts_of
from tests.simulation.server import Obj
from tests.simulation.text_judges import judged
from tests.simulation.viewer_judges import of_link
from trainyard.schema.times import parse

_END_EVENTS = ("Succeeded", "Failed", "DeadlineExceeded", "InvalidSpec")


def untrue(result: ReconcileResult, *, times: bool = True) -> Iterator[str]:
    """What a pass says and is not so. Without `times` where somebody has set the clock back."""
    for text in texts_of(result):
        for problem in judged(result, text):
            yield f"{text.place} ({text.reason}) says {text.message!r}: {problem}"
    yield from _of_events(result)
    if "tasks" in result.after:  # an invalid job has no replicas
        yield from _of_conditions(result)
        yield from _of_replicas(result)
        yield from _of_attempts(result)
        yield from of_link(result)
    if times:
        yield from _of_times(result)


def _of_events(result: ReconcileResult) -> Iterator[str]:
    ends = [event.reason for event in result.events if event.reason in _END_EVENTS]
    if len(ends) != result.ends_now:
        yield f"phase {result.before.get('phase')} to {result.phase}, events of its end: {ends}"
    if ends and (ends[0] == "Succeeded") != (result.phase == "Succeeded"):
        yield f"phase {result.phase}, event {ends[0]}"


def _of_conditions(result: ReconcileResult) -> Iterator[str]:
    conditions = {condition["type"]: condition for condition in result.after["conditions"]}
    is_true = {kind for kind, condition in conditions.items() if condition["status"] == "True"}
    if "Running" in is_true and result.phase != "Running":
        yield f"Running is True, and the phase {result.phase}"
    if "Running" in is_true and not result.well and not _awaits_reports(result):
        yield f"Running is True, and none runs: {dict(result.counts)}"
    if ("Completed" in is_true) != (result.phase in ENDS):
        yield f"Completed is {conditions.get('Completed')}, and the phase {result.phase}"
    if ("Failed" in conditions) != (result.phase in ENDS):
        yield f"Failed is {conditions.get('Failed')}, and the phase {result.phase}"
    if ("Failed" in is_true) != (result.phase == "Failed"):
        yield f"Failed is {conditions.get('Failed')}, and the phase {result.phase}"
    if ("Paused" in is_true) != (result.phase == "Paused"):
        yield f"Paused is {conditions.get('Paused')}, and the phase {result.phase}"
    if "Hung" in is_true and result.phase == "Paused":
        yield "Hung is True, and it is paused"
    yield from _of_failures(result, is_true, conditions)
    yield from _of_success(result)
    if result.phase in ENDS:
        reasons = {
            (conditions[t]["reason"], conditions[t]["message"]) for t in ("Failed", "Completed")
        }
        if len(reasons) > 1:
            yield f"two accounts of the end: {reasons}"


def _awaits_reports(result: ReconcileResult) -> bool:
    """Whether the controller waits to hear how replicas have ended whose pods stay: another has
    heard it, and its status does not tell their last words."""
    if (result.spec.get("runPolicy") or {}).get("restartMode") != "InPlace":
        return False
    reports = result.observed.reports.in_place
    is_any_missing = any(
        p.name not in reports for p in result.observed.pods if p.phase == "Running"
    )
    return is_any_missing and result.plan.wake_at is not None


def _of_success(result: ReconcileResult) -> Iterator[str]:
    """A job that needs all its replicas has not succeeded before; an elastic one goes without
    those that it has lost or never got."""
    if not (result.ends_now and result.phase == "Succeeded" and job_policies.needs_all(result.job)):
        return
    elastic = (result.spec.get("elastic") or {}).get("enabled")
    missing = {"failed", "deleted", "creating"} if elastic else set()
    others = set(result.counts) - missing - {"succeeded"}
    if any(result.counts[phase] for phase in others):
        yield f"it succeeded without all: {dict(result.counts)}"


def _of_failures(
    result: ReconcileResult, is_true: set[str], conditions: dict[str, Obj]
) -> Iterator[str]:
    is_reported = "ReplicaFailure" in is_true
    if result.failed and not is_reported:
        yield f"{result.failed} failed, and ReplicaFailure is {conditions.get('ReplicaFailure')}"
    all_run = "Running" in is_true and result.well == result.total
    if is_reported and (all_run or (result.phase == "Succeeded" and not result.failed)):
        yield f"ReplicaFailure is {conditions['ReplicaFailure']}, and none has failed"


def _is_kept(result: ReconcileResult, name: str) -> bool:
    """Whether the replica's end was told before, and stays as it was told."""
    phase = result.entries[name]["phase"]
    return phase in ENDS and result.known.get(name, {}).get("phase") == phase


def _of_replicas(result: ReconcileResult) -> Iterator[str]:
    """What is told of a replica whose pod was seen."""
    for name, entry in result.entries.items():
        pod = result.pods.get(name)
        if pod is None or entry["uid"] != pod.uid:
            came_late = _is_kept(result, name) and result.goes(name)
            if pod is not None and entry["uid"] and entry["phase"] != "Deleted" and not came_late:
                yield f"{name} is told of a pod that is not there: {entry}"
            continue
        if _is_kept(result, name):
            continue
        codes = [c.exit_code for c in pod.containers if c.exit_code is not None]
        fits = {
            "Creating": not pod.scheduled,
            "Pending": pod.scheduled and pod.phase in ("Pending", "Running"),
            "Running": pod.phase == "Running" and pod.deleting is None,
            "Succeeded": pod.phase == "Succeeded" or 0 in codes,
            "Failed": pod.phase == "Failed"
            or any(codes)
            or result.gave_up(pod)
            or (pod.deleting is not None and job_policies.may_charge_losses(result.job)),
            "Unknown": pod.phase == "Unknown" or pod.node in result.observed.lost_nodes,
            "Deleted": True,
        }
        if not fits[entry["phase"]]:
            yield f"{name} is told as {entry['phase']}, and was seen as {pod}"
        codes_in_status = [c["exitCode"] for c in entry["containers"] if "exitCode" in c]
        if entry["phase"] not in ("Deleted", *ENDS) and codes_in_status != codes:
            yield f"{name} is told with exit codes {codes_in_status}, and was seen with {codes}"


def _of_attempts(result: ReconcileResult) -> Iterator[str]:
    """An attempt that ends in this pass ended as its replica did."""
    before = {repr(attempt) for attempt in result.before.get("attempts") or ()}
    for attempt in result.after.get("attempts") or ():
        pod, code = attempt.get("replica"), attempt.get("exitCode")
        if repr(attempt) not in before:
            yield from _of_ruling(result, attempt)
        if repr(attempt) in before or pod is None or code is None:
            continue
        inits = (
            [c.name for c in result.pods[pod].containers if c.is_init] if pod in result.pods else []
        )
        if not any(result.ended_with(pod, code, init) for init in ("", *inits)):
            yield f"attempt {attempt}: seen {result.pods.get(pod)}, told {result.known.get(pod)}"


def _of_ruling(result: ReconcileResult, attempt: Obj) -> Iterator[str]:
    """What the message of an attempt says of a restart follows, or does not."""
    text, goes_on = str(attempt.get("message") or ""), result.phase not in ENDS
    if text.endswith("restarts after this failure") and not goes_on:
        yield f"{text!r}, and the job has ended"
    if text.endswith("its restarts are used up") and goes_on:
        yield f"{text!r}, and the job goes on"


def _of_times(result: ReconcileResult) -> Iterator[str]:
    after = result.after
    for condition in after.get("conditions") or ():
        moment = parse(condition["lastTransitionTime"])
        if moment is not None and moment > result.now:
            yield f"{condition['type']} is of {moment}, and it is {result.now}"
    start, end = parse(after.get("startTime")), parse(after.get("completionTime"))
    if start is not None and end is not None and end < start:
        yield f"startTime {start}, completionTime {end}"
    for attempt in after.get("attempts") or ():
        began, ended = parse(attempt["startTime"]), parse(attempt.get("endTime"))
        if began is not None and ended is not None and ended < began:
            yield f"attempt {attempt} ends before it starts"
