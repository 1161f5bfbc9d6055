"""A judge for every text of conditions and events: whether it is true of what a pass had seen.

A text is found by its place and its words, and held against the pods, the counts in the same
status, `status.internal` and the spec. One that no row knows is untrue by itself: a new text comes
with its judge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from tests.simulation import policies, repeats
from tests.simulation.telling import ENDS, Judge, Text, Told
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
ALL_WELL = r"All pods are running normally or have completed successfully\."
COUNTED = (
    r"(?P<well>\d+) of (?P<total>\d+) replicas are running or have completed"
    r"(?:; (?P<failed>\d+) ha(?:s|ve) failed)?\."
)
FINISHED = r"The job has finished successfully\."
FAILURES = "Failed|BackoffLimitExceeded|DeadlineExceeded|InvalidSpec|QueueMaxDuration"
WHILE_FAILED = "Failed=True|Completed=True|Running=False"
FAILED_EVENTS = "event Failed|event DeadlineExceeded|event InvalidSpec"


class Row(NamedTuple):
    """Where a text stands, its reason (an event's: its type) and its words."""

    place: re.Pattern[str]
    words: re.Pattern[str]
    judge: Judge
    once: bool
    """Judged only in the pass that tells it first: it is about what was seen then."""


ROWS: list[Row] = []


def says(place: str, reason: str, message: str, *, once: bool = False) -> Callable[[Judge], Judge]:
    """Registers the judge of a text."""
    words = re.compile(f"(?:{reason})\0{message}", re.DOTALL)

    def register(judge: Judge) -> Judge:
        ROWS.append(Row(re.compile(place), words, judge, once))
        return judge

    return register


def judged(told: Told, text: Text) -> Iterator[str]:
    """What is untrue about one text."""
    message = text.message
    if (again := repeats.SAME.fullmatch(message)) is not None:
        message = again["before"]
        if text.is_new:
            yield from repeats.untrue(told, again)
    for row in ROWS:
        found = row.words.fullmatch(f"{text.reason}\0{message}")
        if found and row.place.fullmatch(text.place):
            if text.is_new or not row.once:
                yield from row.judge(told, found)
            return
    yield "no judge knows this text; give it one in tests/simulation/judges.py"


def _if(problem: bool, text: str) -> Iterator[str]:
    if problem:
        yield text


# The beginning, and running.


@says("Initialized=True", "-", r"The job has been initialized successfully\.", once=True)
@says("event Start", "Normal", r"The job has been initialized successfully\.")
def _initialized(told: Told, _: re.Match[str]) -> Iterator[str]:
    missing = [n for n, e in told.entries.items() if not e["uid"] and e["phase"] != "Deleted"]
    yield from _if(bool(missing) and told.phase != "Succeeded", f"there are no pods {missing}")


@says("Running=True|ReplicaFailure=False", "-", ALL_WELL)
def _all_well(told: Told, _: re.Match[str]) -> Iterator[str]:
    gone = told.counts["deleted"] if told.phase in ENDS else 0
    unseen = told.phase == "Succeeded" and not told.failed  # it ended before they had started
    yield from _if(told.well + gone < told.total and not unseen, f"counts {dict(told.counts)}")


@says("Running=(?:True|False)", "-", COUNTED)
def _counted(told: Told, found: re.Match[str]) -> Iterator[str]:
    well, total, failed = (int(found[name] or 0) for name in ("well", "total", "failed"))
    real = (told.well, told.total, told.counts["failed"])
    yield from _if((well, total, failed) != real, f"well, all and failed are {real}")


@says("ReplicaFailure=False", "-", r"No replica has failed\.")
def _none_failed(told: Told, _: re.Match[str]) -> Iterator[str]:
    yield from _if(bool(told.counts["failed"]), f"counts {dict(told.counts)}")


@says("ReplicaFailure=False", "-", r"No replica has failed by itself; (\d+) w(?:as|ere) stopped\.")
def _none_by_itself(told: Told, found: re.Match[str]) -> Iterator[str]:
    number = told.counts["failed"]
    yield from _if(bool(told.failed) or int(found[1]) != number, f"counts {dict(told.counts)}")


@says("Completed=False", "NotFinished", r"The job is still running\.")
def _still_running(told: Told, _: re.Match[str]) -> Iterator[str]:
    yield from _if(told.phase not in ("Running", "Unknown"), f"phase {told.phase}")


@says("Completed=False", "NotFinished", r"The job has not finished\.")
def _not_finished(told: Told, _: re.Match[str]) -> Iterator[str]:
    yield from _if(told.phase in (*ENDS, "Running"), f"phase {told.phase}")


@says("event Running", "Normal", r"The job began running at (.+) UTC")
def _began(told: Told, found: re.Match[str]) -> Iterator[str]:
    at = datetime.fromisoformat(f"{found[1]}+00:00")
    start = parse(told.after.get("startTime"))
    far = start is None or abs(at - start) > timedelta(seconds=1)
    yield from _if(far or "startTime" in told.before, f"startTime {start}")


@says("event Created", "Normal", rf"A {NAMED.replace(' ', ' has been created: ')}")
def _created(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _of_the_job(told, found)
    yield from _if(bool(told.account(told.before)), "it was there before")


@says("event NewReplica", "Normal", r"Create the replica\[(?P<pod>.+)\] for the first time\.")
def _first_pod(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _next_attempt(told, found["pod"], 1)
    yield from _if(found["pod"] in told.known, "it had a pod before")


@says(
    "event NewReplica",
    "Normal",
    r"Create the replica\[(?P<pod>.+)\] again, attempt (?P<attempt>\d+)\.",
)
def _next_pod(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _next_attempt(told, found["pod"], int(found["attempt"]))


@says(
    "event NewReplica",
    "Normal",
    r"Create the replica\[(?P<pod>.+)\], attempt (?P<attempt>\d+): the job has grown\.",
)
def _grown_pod(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _next_attempt(told, found["pod"], int(found["attempt"]))
    yield from _if("resizedAt" not in told.account(told.after), "it has not changed its size")


def _next_attempt(told: Told, pod: str, attempt: int) -> Iterator[str]:
    if pod not in told.creates:
        yield "it is not created"
    elif (real := told.attempt_of(pod)) != attempt:
        yield f"its attempt is {real}"


@says("event NewReplica", "Normal", r"Create (?P<number>\d+) replicas\.")
def _new_pods(told: Told, found: re.Match[str]) -> Iterator[str]:
    number = len(told.creates)
    yield from _if(int(found["number"]) != number or number < 2, f"{number} are created")


@says("event NewReplica", "Normal", r"Create (?P<number>\d+) replicas for the first time\.")
def _first_pods(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _new_pods(told, found)
    for pod in told.creates:
        yield from _next_attempt(told, pod, 1)
        yield from _if(pod in told.known, f"{pod} had a pod before")


@says("event NewReplica", "Normal", r"Create (?P<number>\d+) replicas: (?P<pods>.+)\.")
def _named_pods(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _new_pods(told, found)
    named = [re.fullmatch(r"(\S+) \(attempt (\d+)\)", each) for each in found["pods"].split(", ")]
    pods = {each[1]: int(each[2]) for each in named if each is not None}
    yield from _if(pods.keys() != set(told.creates), f"{sorted(told.creates)} are created")
    for pod, attempt in pods.items():
        yield from _next_attempt(told, pod, attempt)


@says("event NewReplica", "Normal", r"Start (?P<number>\d+) replicas again in their pods\.")
def _in_pods(told: Told, found: re.Match[str]) -> Iterator[str]:
    number = len(told.goes_on)
    yield from _if(int(found["number"]) != number, f"{number} go on")
    yield from _if(bool(told.creates), f"{sorted(told.creates)} are created")


@says(
    "event NewReplica",
    "Normal",
    r"Start (?P<number>\d+) replicas again in their pods: (?P<pods>.+)\.",
)
def _in_named_pods(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _in_pods(told, found)
    named = [re.fullmatch(r"(\S+) \(attempt (\d+)\)", each) for each in found["pods"].split(", ")]
    pods = {each[1]: int(each[2]) for each in named if each is not None}
    yield from _if(pods != told.goes_on, f"{told.goes_on} go on")


@says(
    "event Restart",
    "Warning",
    r"The replicas get new pods: (?P<pods>.+) (?:cannot go on|did not answer in time)\.",
)
def _not_in_place(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _if("inPlaceUntil" not in told.account(told.before), "they were to get new pods")
    yield from _if("inPlaceUntil" in told.account(told.after), "they still may go on")
    stay = [pod for pod in told.pods if told.pods[pod].attempt < told.wanted(pod)]
    yield from _if(any(not told.goes(pod) for pod in stay), f"{stay} do not go")
    yield from _if(bool(told.goes_on), f"{told.goes_on} go on")


# Modes and size.


@says("(?:Paused=True|Running=False)", "Paused", r"The job is paused: its pods are deleted\.")
@says("event Paused", "Normal", r"The job is paused: its pods are deleted\.")
def _paused(told: Told, _: re.Match[str]) -> Iterator[str]:
    phases = ("Creating", "Pending", "Running", "Unknown")
    stay = [n for n, e in told.entries.items() if e["phase"] in phases and not told.goes(n)]
    yield from _if(told.phase != "Paused" or bool(stay), f"phase {told.phase}, {stay} stay")


@says("Paused=False", "Resumed", r"The job has been resumed\.")
@says("event Resumed", "Normal", r"The job has been resumed\.")
def _resumed(told: Told, _: re.Match[str]) -> Iterator[str]:
    yield from _if(told.phase == "Paused", "it is paused")


@says("event Scaled", "Normal", r"The job changes its size from (\d+) to (\d+) replicas\.")
def _scaled(told: Told, found: re.Match[str]) -> Iterator[str]:
    sizes = [told.account(status).get("size") for status in (told.before, told.after)]
    told_sizes = [int(found[1]), int(found[2])]
    yield from _if(sizes != told_sizes or told.total != sizes[1], f"{sizes}, {told.total} told")


# Failures of replicas.


@says("ReplicaFailure=True", "ErrorInPod", FAILURE, once=True)
@says("event ReplicaFailure", "Warning", FAILURE)
def _failure(told: Told, found: re.Match[str]) -> Iterator[str]:
    code = int(found["code"]) if found["code"] else None
    why = found["why"] or ""
    init = why.rpartition("init container ")[2] if "init container " in why else ""
    if code == 0 or not told.ended_with(found["pod"], code, init):
        yield f"it did not end so: {_seen(told, found['pod'])}"


@says("event Restart", "Warning", rf"{FAILURE}\nRestarting {WHAT}{DELAY} {BUDGET}\.")
def _restart(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _failure(told, found)
    yield from _restarted(told, found)
    yield from _spent(told, found)


@says("event Restart", "Normal", rf"{POD} has completed; {WHAT} will run again{DELAY} {BUDGET}\.")
def _again(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _if(not told.ended_with(found["pod"], 0), _seen(told, found["pod"]))
    yield from _restarted(told, found)
    yield from _spent(told, found)


@says(
    "event Restart",
    "Normal",
    rf"{POD} was taken away \((?P<why>[^()]+)\); {WHAT} will be created again{DELAY}, at no cost\.",
)
def _taken(told: Told, found: re.Match[str]) -> Iterator[str]:
    ways = {"BadNode": told.leaves_its_node, "NoOtherNode": told.finds_no_node}
    was_taken = ways.get(found["why"], told.was_taken)
    yield from _if(not was_taken(found["pod"]), _seen(told, found["pod"]))
    yield from _restarted(told, found)
    others = sum(1 for event in told.events if event.reason == "Restart") > 1
    before, after = (status.get("backoffCount") or 0 for status in (told.before, told.after))
    yield from _if(after > before and not others, f"backoffCount {before}, then {after}")


@says(
    "event Restart",
    "Normal",
    rf"{FAILURE}\nThe members of the job had changed: {WHAT} will be created again{DELAY}, "
    "at no cost\\.",
)
def _followed(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _failure(told, found)
    yield from _restarted(told, found)
    yield from _if("elastic" not in told.spec, "the job is not elastic")


def _restarted(told: Told, found: re.Match[str]) -> Iterator[str]:
    number = 1 if found["what"] == "it" else int(found["what"].split()[0])
    raised = told.raised()
    yield from _if(found["pod"] not in raised, "the replica gets no other attempt")
    raised -= told.apart - {found["pod"]}
    yield from _if(number > len(raised), f"{len(raised)} replicas start anew")
    if found["pod"] in told.apart:
        return
    all_together = told.account(told.after).get("floor", 1) > told.account(told.before).get(
        "floor", 1
    )
    yield from _if(all_together and number != len(raised), f"{len(raised)} replicas start anew")


def _spent(told: Told, found: re.Match[str]) -> Iterator[str]:
    spent, limit = int(found["spent"]), int(found["limit"])
    account = told.account(told.after)
    record = (account.get("replicas") or {}).get(found["pod"]) or {}
    yield from _if(spent > limit or spent < 1, "more than there is")
    yield from _if(
        spent not in (account.get("backoff", 0), record.get("restarts", 0)),
        f"status.internal has {account.get('backoff', 0)}, the replica {record.get('restarts', 0)}",
    )


def _seen(told: Told, pod: str) -> str:
    return f"seen {told.pods.get(pod)}, told {told.known.get(pod)}"


# What keeps it from running.


@says("Running=False", "NameConflict", r"cannot create .+: the name is held by .+; delete .+\.")
@says("event NameConflict", "Warning", r"cannot create .+: the name is held by .+; delete .+\.")
def _name_taken(told: Told, found: re.Match[str]) -> Iterator[str]:
    held = (f" {c.name}: the name is held by {c.owner};" for c in told.observed.conflicts)
    yield from _if(not any(text in found[0] for text in held), f"{told.observed.conflicts}")


REFUSED = r"the server refuses to create \S+ (?P<name>\S+) \((?P<code>\d+)\): (?P<said>.*)"


@says("Running=False", "CreationRefused", REFUSED)
@says("event CreationRefused", "Warning", REFUSED)
def _refused(told: Told, found: re.Match[str]) -> Iterator[str]:
    told_of = (found["name"], int(found["code"]), found["said"])
    known = [(r.name, r.code, r.message) for r in told.observed.refusals]
    yield from _if(told_of not in known, f"refused were {known}")
    yield from _if(told_of[0] in told.pods, "it is there")


@says("Running=False", "Unschedulable", rf"{POD} cannot be scheduled: (?P<said>.*)")
def _unschedulable(told: Told, found: re.Match[str]) -> Iterator[str]:
    pod = told.pods.get(found["pod"])
    placed = pod is None or pod.scheduled or pod.unschedulable != found["said"]
    yield from _if(placed, _seen(told, found["pod"]))


@says("Running=False", "NoGangScheduler", r"The job asks for scheduler\.t9kScheduler, .*")
@says("event NoGangScheduler", "Warning", r"The job asks for scheduler\.t9kScheduler, .*")
def _no_gang(told: Told, _: re.Match[str]) -> Iterator[str]:
    asks = "t9kScheduler" in (told.spec.get("scheduler") or {})
    yield from _if(not asks or bool(told.creates), f"{told.spec.get('scheduler')}")


# What the spec gets and does not get.


@says("event IgnoredField", "Warning", r".+")
def _ignored(told: Told, found: re.Match[str]) -> Iterator[str]:
    known = str(told.account(told.after).get("warned", "")).splitlines()
    yield from _if(found[0].partition("\0")[2] not in known, f"warned of {known}")


@says("event SpecDrift", "Warning", r"The spec has changed after creation\. .+")
def _drift(told: Told, _: re.Match[str]) -> Iterator[str]:
    hashes = [status.get("specHash") for status in (told.before, told.after)]
    yield from _if(hashes[0] in (None, hashes[1]), f"{hashes}")


# The end.


@says("Running=False|Failed=False|Completed=True", "Succeeded", FINISHED)
@says("event Succeeded", "Normal", FINISHED)
@says("ReplicaFailure=False", "Finished", FINISHED.removesuffix(r"\."))
def _succeeded(told: Told, _: re.Match[str]) -> Iterator[str]:
    yield from _if(told.phase != "Succeeded", f"phase {told.phase}")


def _of_the_job(told: Told, found: re.Match[str]) -> Iterator[str]:
    real = (told.job["kind"], told.job["metadata"]["name"])
    yield from _if((found["kind"], found["job"]) != real, f"it is {real}")


def _named(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _of_the_job(told, found)
    yield from _if(told.phase == "Succeeded", "it succeeded")


ENDED_SO = "Failed|BackoffLimitExceeded|RestartsInVain"
BLAMED = rf"{NAMED} has failed: (?P<pod>[a-z0-9-]+) failed"


@says(WHILE_FAILED, ENDED_SO, rf"{BLAMED} with exit code (?P<code>\d+)")
@says("event Failed", "Warning", rf"{BLAMED} with exit code (?P<code>\d+)")
@says(WHILE_FAILED, ENDED_SO, rf"{BLAMED}(?: \((?P<why>[^()]+)\))?")
@says("event Failed", "Warning", rf"{BLAMED}(?: \((?P<why>[^()]+)\))?")
def _failed(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _named(told, found)
    entry = told.entries.get(found["pod"], {})
    yield from _if(entry.get("phase") != "Failed", f"the replica is told as {entry}")
    code = int(found["code"]) if "code" in found.groupdict() else None
    if told.ends_now and not told.ended_with(found["pod"], code):
        inits = [c.name for p in told.observed.pods for c in p.containers if c.is_init]
        of_init = any(code is not None and told.ended_with(found["pod"], code, i) for i in inits)
        yield from _if(not of_init, f"it did not end so: {_seen(told, found['pod'])}")


@says(WHILE_FAILED, "Failed", rf"{NAMED} has failed\.", once=True)
def _failed_somehow(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _named(told, found)
    held = {c["type"]: c["status"] for c in told.before.get("conditions") or ()}
    is_known = "True" in (held.get("Failed"), held.get("Completed"))
    yield from _if(told.ends_now or is_known, "it was known why")


@says(WHILE_FAILED, "Failed", r"The job is failed with rule: (?P<rule>\{.*\})")
@says("event Failed", "Warning", r"The job is failed with rule: (?P<rule>\{.*\})")
def _rule(told: Told, found: re.Match[str]) -> Iterator[str]:
    rule = {name: [int(i) for i in numbers] for name, numbers in json.loads(found["rule"]).items()}
    yield from _if(rule not in told.spec.get("failureRules", ()), "there is no such rule")
    for task in told.after["tasks"]:
        for number in rule.get(task["type"], ()):
            entry = task["replicas"][number]
            # A replica lost at a cost is Deleted once its pod is gone (decision 215).
            lost = policies.may_charge_losses(told.job) and told.was_taken(entry["name"])
            phases = ("Failed", "Deleted") if lost else ("Failed",)
            is_so = entry["phase"] in phases
            yield from _if(not is_so, f"{task['type']}-{number} is {entry['phase']}")


OVERDUE = rf"{NAMED} has failed: it was active longer than activeDeadlineSeconds \((\d+)\) allows\."


@says(WHILE_FAILED, "DeadlineExceeded", OVERDUE)
@says("event DeadlineExceeded", "Warning", OVERDUE)
def _overdue(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _named(told, found)
    limit = (told.spec.get("runPolicy") or told.spec).get("activeDeadlineSeconds")
    start, end = (parse(told.after.get(key)) for key in ("startTime", "completionTime"))
    assert start is not None
    assert end is not None
    active = (end - start).total_seconds()
    yield from _if(int(found[3]) != limit or active < limit, f"{active} s of {limit}")


@says(WHILE_FAILED, "InvalidSpec", rf"{NAMED} is invalid: .+")
@says("event InvalidSpec", "Warning", rf"{NAMED} is invalid: .+")
def _invalid(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _named(told, found)
    yield from _if(bool(told.creates), "pods are created all the same")


QUEUE = rf"{NAMED} has failed: its queue removed (?P<pod>\S+), which ran longer .+"


@says(WHILE_FAILED, "QueueMaxDuration", QUEUE)
@says("event Failed", "Warning", QUEUE)
def _queue_limit(told: Told, found: re.Match[str]) -> Iterator[str]:
    yield from _named(told, found)
    pod = told.pods.get(found["pod"])
    yield from _if(told.ends_now and (pod is None or "MaxDuration" not in pod.disruption), f"{pod}")
