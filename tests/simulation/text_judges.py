"""A judge for every text of conditions and events: whether it is true of what a pass had seen.

A text is found by its place and its words, and held against the pods, the counts in the same
status, `status.internal` and the spec. One that no row knows is untrue by itself: a new text comes
with its judge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from tests.simulation import job_policies, repeated_failures
from tests.simulation.judge_registry import JudgeRegistry, _if
from tests.simulation.reconcile_result import ENDS, ReconcileResult, Text
from trainyard.lifecycle import texts
from trainyard.schema.times import parse

POD = r"Pod\[(?P<pod>[a-z0-9-]+)\]"
FAILURE = (
    POD + r" (?:exited with error code (?P<code>-?\d+)|failed)"
    r"(?: \((?P<why>[^()\n]+)\))?(?:: (?P<lines>.+?))?"
)
DELAY = r"(?: in (?P<seconds>[\d.e+]+) s)?"
BUDGET = r"\((?P<spent>\d+) of (?P<limit>\d+) restarts\)"
WHAT = r"(?P<what>it|\d+ replicas)"
NAMED = r"(?P<kind>\w+) (?P<job>[\w.-]+)"
TEXT = r"(?P<text>.+)"
COUNTED = (
    r"(?P<well>\d+) of (?P<total>\d+) replicas are running or have completed"
    r"(?:; (?P<failed>\d+) ha(?:s|ve) failed)?\."
)
WHILE_FAILED = "Failed=True|Completed=True|Running=False"


judges = JudgeRegistry[ReconcileResult](__file__)
exactly = re.escape


def judged(result: ReconcileResult, text: Text) -> Iterator[str]:
    """What is untrue about one text."""
    message = text.message
    if (again := repeated_failures.SAME.fullmatch(message)) is not None:
        message = again["before"]
        if text.is_new:
            yield from repeated_failures.untrue(result, again)
    yield from judges.untrue(result, text.place, text.reason, message, is_new=text.is_new)


# The beginning, and running.


@judges("Initialized=True", "-", exactly(texts.INITIALIZED), once=True)
@judges("event Start", "Normal", exactly(texts.INITIALIZED))
def _initialized(result: ReconcileResult, _: re.Match[str]) -> Iterator[str]:
    missing = [n for n, e in result.entries.items() if not e["uid"] and e["phase"] != "Deleted"]
    yield from _if(bool(missing) and result.phase != "Succeeded", f"there are no pods {missing}")


@judges("Running=True|ReplicaFailure=False", "-", exactly(texts.RUNNING))
def _all_well(result: ReconcileResult, _: re.Match[str]) -> Iterator[str]:
    gone = result.counts["deleted"] if result.phase in ENDS else 0
    unseen = result.phase == "Succeeded" and not result.failed  # it ended before they had started
    yield from _if(
        result.well + gone < result.total and not unseen, f"counts {dict(result.counts)}"
    )


@judges("Running=(?:True|False)", "-", COUNTED)
def _counted(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    well, total, failed = (int(found[name] or 0) for name in ("well", "total", "failed"))
    real = (result.well, result.total, result.counts["failed"])
    yield from _if((well, total, failed) != real, f"well, all and failed are {real}")


@judges("ReplicaFailure=False", "-", exactly(texts.NO_FAILURE))
def _none_failed(result: ReconcileResult, _: re.Match[str]) -> Iterator[str]:
    yield from _if(bool(result.counts["failed"]), f"counts {dict(result.counts)}")


@judges(
    "ReplicaFailure=False", "-", r"No replica has failed by itself; (\d+) w(?:as|ere) stopped\."
)
def _none_by_itself(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    number = result.counts["failed"]
    yield from _if(bool(result.failed) or int(found[1]) != number, f"counts {dict(result.counts)}")


@judges("Completed=False", "NotFinished", exactly(texts.STILL_RUNNING))
def _still_running(result: ReconcileResult, _: re.Match[str]) -> Iterator[str]:
    yield from _if(result.phase not in ("Running", "Unknown"), f"phase {result.phase}")


@judges("Completed=False", "NotFinished", exactly(texts.NOT_FINISHED))
def _not_finished(result: ReconcileResult, _: re.Match[str]) -> Iterator[str]:
    yield from _if(result.phase in (*ENDS, "Running"), f"phase {result.phase}")


@judges("event Running", "Normal", r"The job began running at (.+) UTC")
def _began(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    at = datetime.fromisoformat(f"{found[1]}+00:00")
    start = parse(result.after.get("startTime"))
    far = start is None or abs(at - start) > timedelta(seconds=1)
    yield from _if(far or "startTime" in result.before, f"startTime {start}")


@judges("event Created", "Normal", rf"A {NAMED.replace(' ', ' has been created: ')}")
def _created(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _of_the_job(result, found)
    yield from _if(bool(result.account(result.before)), "it was there before")


@judges("event NewReplica", "Normal", r"Create the replica\[(?P<pod>.+)\] for the first time\.")
def _first_pod(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _next_attempt(result, found["pod"], 1)
    yield from _if(found["pod"] in result.known, "it had a pod before")


@judges(
    "event NewReplica",
    "Normal",
    r"Create the replica\[(?P<pod>.+)\] again, attempt (?P<attempt>\d+)\.",
)
def _next_pod(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _next_attempt(result, found["pod"], int(found["attempt"]))


@judges(
    "event NewReplica",
    "Normal",
    r"Create the replica\[(?P<pod>.+)\], attempt (?P<attempt>\d+): the job has grown\.",
)
def _grown_pod(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _next_attempt(result, found["pod"], int(found["attempt"]))
    yield from _if("resizedAt" not in result.account(result.after), "it has not changed its size")


def _next_attempt(result: ReconcileResult, pod: str, attempt: int) -> Iterator[str]:
    if pod not in result.creates:
        yield "it is not created"
    elif (real := result.attempt_of(pod)) != attempt:
        yield f"its attempt is {real}"


@judges("event NewReplica", "Normal", r"Create (?P<number>\d+) replicas\.")
def _new_pods(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    number = len(result.creates)
    yield from _if(int(found["number"]) != number or number < 2, f"{number} are created")


@judges("event NewReplica", "Normal", r"Create (?P<number>\d+) replicas for the first time\.")
def _first_pods(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _new_pods(result, found)
    for pod in result.creates:
        yield from _next_attempt(result, pod, 1)
        yield from _if(pod in result.known, f"{pod} had a pod before")


@judges("event NewReplica", "Normal", r"Create (?P<number>\d+) replicas: (?P<pods>.+)\.")
def _named_pods(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _new_pods(result, found)
    named = [re.fullmatch(r"(\S+) \(attempt (\d+)\)", each) for each in found["pods"].split(", ")]
    pods = {each[1]: int(each[2]) for each in named if each is not None}
    yield from _if(pods.keys() != set(result.creates), f"{sorted(result.creates)} are created")
    for pod, attempt in pods.items():
        yield from _next_attempt(result, pod, attempt)


@judges("event NewReplica", "Normal", r"Start (?P<number>\d+) replicas again in their pods\.")
def _in_pods(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    number = len(result.goes_on)
    yield from _if(int(found["number"]) != number, f"{number} go on")
    yield from _if(bool(result.creates), f"{sorted(result.creates)} are created")


@judges(
    "event NewReplica",
    "Normal",
    r"Start (?P<number>\d+) replicas again in their pods: (?P<pods>.+)\.",
)
def _in_named_pods(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _in_pods(result, found)
    named = [re.fullmatch(r"(\S+) \(attempt (\d+)\)", each) for each in found["pods"].split(", ")]
    pods = {each[1]: int(each[2]) for each in named if each is not None}
    yield from _if(pods != result.goes_on, f"{result.goes_on} go on")


@judges(
    "event Restart",
    "Warning",
    r"The replicas get new pods: (?P<pods>.+) (?:cannot go on|did not answer in time)\.",
)
def _not_in_place(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _if("inPlaceUntil" not in result.account(result.before), "they were to get new pods")
    yield from _if("inPlaceUntil" in result.account(result.after), "they still may go on")
    stay = [pod for pod in result.pods if result.pods[pod].attempt < result.wanted(pod)]
    yield from _if(any(not result.goes(pod) for pod in stay), f"{stay} do not go")
    yield from _if(bool(result.goes_on), f"{result.goes_on} go on")


# Modes and size.


@judges("(?:Paused=True|Running=False)", "Paused", exactly(texts.PAUSED))
@judges("event Paused", "Normal", exactly(texts.PAUSED))
def _paused(result: ReconcileResult, _: re.Match[str]) -> Iterator[str]:
    phases = ("Creating", "Pending", "Running", "Unknown")
    stay = [n for n, e in result.entries.items() if e["phase"] in phases and not result.goes(n)]
    yield from _if(result.phase != "Paused" or bool(stay), f"phase {result.phase}, {stay} stay")


@judges("Paused=False", "Resumed", exactly(texts.RESUMED))
@judges("event Resumed", "Normal", exactly(texts.RESUMED))
def _resumed(result: ReconcileResult, _: re.Match[str]) -> Iterator[str]:
    yield from _if(result.phase == "Paused", "it is paused")


@judges("event Scaled", "Normal", r"The job changes its size from (\d+) to (\d+) replicas\.")
def _scaled(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    sizes = [result.account(status).get("size") for status in (result.before, result.after)]
    sizes_in_text = [int(found[1]), int(found[2])]
    yield from _if(
        sizes != sizes_in_text or result.total != sizes[1], f"{sizes}, {result.total} told"
    )


# Failures of replicas.


@judges("ReplicaFailure=True", "ErrorInPod", FAILURE, once=True)
@judges("event ReplicaFailure", "Warning", FAILURE)
def _failure(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    code = int(found["code"]) if found["code"] else None
    why = found["why"] or ""
    init = why.rpartition("init container ")[2] if "init container " in why else ""
    if code == 0 or not result.ended_with(found["pod"], code, init):
        yield f"it did not end so: {_seen(result, found['pod'])}"


@judges("event Restart", "Warning", rf"{FAILURE}\nRestarting {WHAT}{DELAY} {BUDGET}\.")
def _restart(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _failure(result, found)
    yield from _restarted(result, found)
    yield from _spent(result, found)


@judges("event Restart", "Normal", rf"{POD} has completed; {WHAT} will run again{DELAY} {BUDGET}\.")
def _again(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _if(not result.ended_with(found["pod"], 0), _seen(result, found["pod"]))
    yield from _restarted(result, found)
    yield from _spent(result, found)


@judges(
    "event Restart",
    "Normal",
    rf"{POD} was taken away \((?P<why>[^()]+)\); {WHAT} will be created again{DELAY}, at no cost\.",
)
def _taken(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    ways = {"BadNode": result.leaves_its_node, "NoOtherNode": result.finds_no_node}
    was_taken = ways.get(found["why"], result.was_taken)
    yield from _if(not was_taken(found["pod"]), _seen(result, found["pod"]))
    yield from _restarted(result, found)
    others = sum(1 for event in result.events if event.reason == "Restart") > 1
    before, after = (status.get("backoffCount") or 0 for status in (result.before, result.after))
    yield from _if(after > before and not others, f"backoffCount {before}, then {after}")


@judges(
    "event Restart",
    "Normal",
    rf"{FAILURE}\nThe members of the job had changed: {WHAT} will be created again{DELAY}, "
    "at no cost\\.",
)
def _followed(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _failure(result, found)
    yield from _restarted(result, found)
    yield from _if("elastic" not in result.spec, "the job is not elastic")


def _restarted(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    number = 1 if found["what"] == "it" else int(found["what"].split()[0])
    raised = result.raised()
    yield from _if(found["pod"] not in raised, "the replica gets no other attempt")
    raised -= result.apart - {found["pod"]}
    yield from _if(number > len(raised), f"{len(raised)} replicas start anew")
    if found["pod"] in result.apart:
        return
    all_together = result.account(result.after).get("floor", 1) > result.account(result.before).get(
        "floor", 1
    )
    yield from _if(all_together and number != len(raised), f"{len(raised)} replicas start anew")


def _spent(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    spent, limit = int(found["spent"]), int(found["limit"])
    account = result.account(result.after)
    record = (account.get("replicas") or {}).get(found["pod"]) or {}
    yield from _if(spent > limit or spent < 1, "more than there is")
    yield from _if(
        spent not in (account.get("backoff", 0), record.get("restarts", 0)),
        f"status.internal has {account.get('backoff', 0)}, the replica {record.get('restarts', 0)}",
    )


def _seen(result: ReconcileResult, pod: str) -> str:
    return f"seen {result.pods.get(pod)}, told {result.known.get(pod)}"


# What keeps it from running.


@judges("Running=False", "NameConflict", TEXT)
@judges("event NameConflict", "Warning", TEXT)
def _name_taken(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    known = [f"{texts.name_taken_for_job(each)}." for each in result.observed.conflicts]
    yield from _if(found["text"] not in known, f"{result.observed.conflicts}")


@judges("Running=False", "CreationRefused", TEXT)
@judges("event CreationRefused", "Warning", TEXT)
def _refused(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    known = {texts.refused(each): each.name for each in result.observed.refusals}
    yield from _if(found["text"] not in known, f"refused were {known}")
    yield from _if(known.get(found["text"]) in result.pods, "it is there")


@judges("Running=False", "Unschedulable", TEXT)
def _unschedulable(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    known = [texts.unschedulable(pod) for pod in result.pods.values() if not pod.scheduled]
    yield from _if(found["text"] not in known, f"not scheduled are {known}")


@judges("Running=False", "NoGangScheduler", exactly(texts.NO_GANG))
@judges("event NoGangScheduler", "Warning", exactly(texts.NO_GANG))
def _no_gang(result: ReconcileResult, _: re.Match[str]) -> Iterator[str]:
    asks = "t9kScheduler" in (result.spec.get("scheduler") or {})
    yield from _if(not asks or bool(result.creates), f"{result.spec.get('scheduler')}")


# What the spec gets and does not get.


@judges("event IgnoredField", "Warning", r".+")
def _ignored(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    known = str(result.account(result.after).get("warned", "")).splitlines()
    yield from _if(found[0].partition("\0")[2] not in known, f"warned of {known}")


@judges("event SpecDrift", "Warning", exactly(texts.SPEC_DRIFT))
def _drift(result: ReconcileResult, _: re.Match[str]) -> Iterator[str]:
    hashes = [status.get("specHash") for status in (result.before, result.after)]
    yield from _if(hashes[0] in (None, hashes[1]), f"{hashes}")


# The end.


@judges("Running=False|Failed=False|Completed=True", "Succeeded", exactly(texts.FINISHED))
@judges("event Succeeded", "Normal", exactly(texts.FINISHED))
@judges("ReplicaFailure=False", "Finished", exactly(texts.ALL_FINISHED))
def _succeeded(result: ReconcileResult, _: re.Match[str]) -> Iterator[str]:
    yield from _if(result.phase != "Succeeded", f"phase {result.phase}")


def _of_the_job(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    real = (result.job["kind"], result.job["metadata"]["name"])
    yield from _if((found["kind"], found["job"]) != real, f"it is {real}")


def _named(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _of_the_job(result, found)
    yield from _if(result.phase == "Succeeded", "it succeeded")


ENDED_SO = "Failed|BackoffLimitExceeded|RestartsInVain"
BLAMED = rf"{NAMED} has failed: (?P<pod>[a-z0-9-]+) failed"


def _was_cleaned_up(result: ReconcileResult, entry: Mapping[str, Any]) -> bool:
    """After its failure, which it still tells."""
    return result.phase in ENDS and entry.get("phase") == "Deleted" and "reason" in entry


@judges(WHILE_FAILED, ENDED_SO, rf"{BLAMED} with exit code (?P<code>\d+)")
@judges("event Failed", "Warning", rf"{BLAMED} with exit code (?P<code>\d+)")
@judges(WHILE_FAILED, ENDED_SO, rf"{BLAMED}(?: \((?P<why>[^()]+)\))?")
@judges("event Failed", "Warning", rf"{BLAMED}(?: \((?P<why>[^()]+)\))?")
def _failed(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _named(result, found)
    entry = result.entries.get(found["pod"], {})
    is_told = entry.get("phase") == "Failed" or _was_cleaned_up(result, entry)
    yield from _if(not is_told, f"the replica is told as {entry}")
    code = int(found["code"]) if "code" in found.groupdict() else None
    if result.ends_now and not result.ended_with(found["pod"], code):
        inits = [c.name for p in result.observed.pods for c in p.containers if c.is_init]
        of_init = any(code is not None and result.ended_with(found["pod"], code, i) for i in inits)
        yield from _if(not of_init, f"it did not end so: {_seen(result, found['pod'])}")


@judges(WHILE_FAILED, "Failed", rf"{NAMED} has failed\.", once=True)
def _failed_somehow(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _named(result, found)
    before = {c["type"]: c["status"] for c in result.before.get("conditions") or ()}
    is_known = "True" in (before.get("Failed"), before.get("Completed"))
    yield from _if(result.ends_now or is_known, "it was known why")


@judges(WHILE_FAILED, "Failed", r"The job is failed with rule: (?P<rule>\{.*\})")
@judges("event Failed", "Warning", r"The job is failed with rule: (?P<rule>\{.*\})")
def _rule(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    rule = {name: [int(i) for i in numbers] for name, numbers in json.loads(found["rule"]).items()}
    yield from _if(rule not in result.spec.get("failureRules", ()), "there is no such rule")
    for task in result.after["tasks"]:
        for number in rule.get(task["type"], ()):
            entry = task["replicas"][number]
            # A replica lost at a cost is Deleted once its pod is gone (decision 215).
            lost = job_policies.may_charge_losses(result.job) and result.was_taken(entry["name"])
            phases = ("Failed", "Deleted") if lost else ("Failed",)
            is_so = entry["phase"] in phases or _was_cleaned_up(result, entry)
            yield from _if(not is_so, f"{task['type']}-{number} is {entry['phase']}")


OVERDUE = rf"{NAMED} has failed: it was active longer than its deadline of (\d+) s\."


@judges(WHILE_FAILED, "DeadlineExceeded", OVERDUE)
@judges("event DeadlineExceeded", "Warning", OVERDUE)
def _overdue(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _named(result, found)
    limit = (result.spec.get("runPolicy") or result.spec).get("activeDeadlineSeconds")
    start, end = (parse(result.after.get(key)) for key in ("startTime", "completionTime"))
    assert start is not None
    assert end is not None
    active = (end - start).total_seconds()
    yield from _if(int(found[3]) != limit or active < limit, f"{active} s of {limit}")


@judges(WHILE_FAILED, "InvalidSpec", rf"{NAMED} is invalid: .+")
@judges("event InvalidSpec", "Warning", rf"{NAMED} is invalid: .+")
def _invalid(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _named(result, found)
    yield from _if(bool(result.creates), "pods are created all the same")


QUEUE = rf"{NAMED} has failed: its queue removed (?P<pod>\S+), which ran longer .+"


@judges(WHILE_FAILED, "QueueMaxDuration", QUEUE)
@judges("event Failed", "Warning", QUEUE)
def _queue_limit(result: ReconcileResult, found: re.Match[str]) -> Iterator[str]:
    yield from _named(result, found)
    pod = result.pods.get(found["pod"])
    yield from _if(
        result.ends_now and (pod is None or "MaxDuration" not in pod.disruption), f"{pod}"
    )
