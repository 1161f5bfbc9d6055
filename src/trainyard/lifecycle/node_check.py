"""Nodes that are tested before the start: `status.nodeCheck`, an event, and a word for each pod.

What is decided stands in the status: who takes part, when all were ready or had their time, and
what came of it. By that a pod is told to wait, to begin, or to start its command; so another
controller goes on where one ended (decision 295).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from trainyard.kinds.shared.reasons import EventReason
from trainyard.lifecycle import avoidance, checks, in_place
from trainyard.lifecycle.actions import Event
from trainyard.lifecycle.checks import Checked
from trainyard.lifecycle.hanging import short_name
from trainyard.lifecycle.observed import Pod
from trainyard.lifecycle.passes import Pass
from trainyard.lifecycle.report import Report
from trainyard.schema.times import earliest, parse, render

ROUND_SECONDS = 45
"""How long a round may take."""
_LATE = timedelta(seconds=120)
"""How long one that runs may take to say that it takes part."""
_ANSWERS = timedelta(seconds=15)
"""And, when the last round is over, to say how it went."""
CHECKING, PASSED, BAD, INCOMPLETE = "Checking", "Passed", "BadNodes", "Incomplete"
MOST = 8
"""Bad ones that are named."""
WAIT, START = {"say": "wait"}, {"say": "start"}

Told = dict[str, Any]


def word(status: Mapping[str, Any], pod: Pod) -> Told:
    """What a pod is told that asks."""
    found = _stored(status)
    if found is None or found["attempt"] < pod.attempt:
        return dict(WAIT)
    leaving = avoidance.leaves(status)
    if leaving and (pod.name in leaving or in_place.word(status, pod)["wanted"] > pod.attempt):
        return dict(WAIT)  # it is about to go
    members = _members(found)
    names = [each["replica"] for each in members]
    if found["state"] != CHECKING or found["attempt"] > pod.attempt or pod.name not in names:
        return dict(START)
    own, pairs = names.index(pod.name), []
    drawn = checks.rounds(len(members))
    for number, each in enumerate(drawn):
        for first, second in each:
            if own in (first, second):
                # The first one's store is where both meet.
                meet = {"host": members[first]["host"], "port": members[first]["port"]}
                peer = names[second if own == first else first]
                until = ROUND_SECONDS * (number + 1)
                rank = int(own == second)
                pairs.append(
                    {"round": number, "replica": peer, "rank": rank, "until": until, **meet}
                )
    seconds = ROUND_SECONDS * len(drawn)
    return {"say": "check", "run": found["time"], "seconds": seconds, "pairs": pairs}


def respond(job: Pass, report: Report) -> tuple[Pass, datetime | None]:
    """Go on with the test of this start: the same with those as taken away whose nodes are avoided
    for what came of it; when to look again."""
    due = _look(job, report)
    job, unplaced = avoidance.give_up(job, report)
    return job, earliest(due, unplaced)


def _look(job: Pass, report: Report) -> datetime | None:
    if not job.workload.checks_nodes:
        report.status.pop("nodeCheck", None)
        return None
    told = _heard(job)
    found = _stored(job.before)
    if found is None or found["attempt"] != job.ledger.floor:
        return _begin(job, told, report)
    if found["state"] != CHECKING:
        return None
    names = [each["replica"] for each in _members(found)]
    run, began = found["time"], parse(found["time"])
    assert began is not None
    silent = [name for name in names if _is_awaited(job, told.get(name), name, run)]
    seconds = ROUND_SECONDS * len(checks.rounds(len(names)))
    due = began + timedelta(seconds=seconds) + _ANSWERS
    if silent and job.now < due:
        return due
    done = {
        name: each
        for name in names
        if (each := told.get(name)) is not None and (each.stage, each.run) == (checks.DONE, run)
    }
    # Of one that could not stay nothing is known, and one that says nothing may be cut off.
    gone = {name for name in names if name not in done and name not in silent}
    _end(job, names, {name: each.without(gone) for name, each in done.items()}, told, report)
    return None


def _heard(job: Pass) -> dict[str, Checked]:
    """What the pods of this start have told, by name."""
    heard = job.observed.heard.checks
    return {
        replica.name: found
        for replica in job.view.replicas
        if replica.pod is not None and (found := heard.get(replica.name)) is not None
        if (found.uid, found.attempt) == (replica.pod.uid, job.ledger.floor)
    }


def _begin(job: Pass, told: Mapping[str, Checked], report: Report) -> datetime | None:
    """Have the test begin once all are ready, or those that are not have had their time."""
    wake_at, waits = None, False
    for replica in job.view.replicas:
        found = told.get(replica.name)
        if found is not None and found.stage != checks.BEGUN:
            continue
        if replica.ended:
            continue
        since = replica.pod.started if replica.pod is not None else None
        if found is not None or since is None:
            waits = True
        elif job.now < since + _LATE:
            waits, wake_at = True, earliest(wake_at, since + _LATE)
    # One that restarts in its pod is not tested again.
    was_tested = job.ledger.floor > 1 and job.workload.in_place is not None
    if waits or not (told or (job.view.replicas and not was_tested)):
        return wake_at
    ready = {name: each for name, each in told.items() if each.port and each.stage != checks.LEFT}
    if not ready:
        _end(job, (), {}, told, report)
        return None
    members = [{"replica": n, "host": c.host, "port": c.port} for n, c in ready.items()]
    report.status["nodeCheck"] = {
        **avoidance.kept(report.status),
        "attempt": job.ledger.floor,
        "state": CHECKING,
        "time": render(job.now),
        "message": f"{len(members)} replicas take part",
        "members": members,
    }
    return job.now + _ANSWERS


def _is_awaited(job: Pass, told: Checked | None, name: str, run: str) -> bool:
    """Whether one that takes part may yet say how it went."""
    replica = next((each for each in job.view.replicas if each.name == name), None)
    if replica is None or replica.pod is None or replica.ended:
        return False
    return told is None or not (
        told.stage == checks.LEFT or (told.stage, told.run) == (checks.DONE, run)
    )


def _end(
    job: Pass,
    members: Sequence[str],
    done: Mapping[str, Checked],
    told: Mapping[str, Checked],
    report: Report,
) -> None:
    """Put into the status what came of it, with an event."""
    names = {replica.name: short_name(replica) for replica in job.view.replicas}
    nodes = {r.name: r.pod.node for r in job.view.replicas if r.pod is not None}
    bad = checks.judge(members, done, nodes)
    missing = [names[name] for name in names if name not in done]
    if bad:
        state = BAD
        text = "; ".join(
            f"{names[b.pod]} on {nodes.get(b.pod) or '?'}: {b.why}" for b in bad[:MOST]
        )
    elif missing:
        state = INCOMPLETE
        why = next((each.error for each in told.values() if each.stage == checks.LEFT), "")
        text = f"{len(missing)} of {len(names)} replicas were not tested, {missing[0]} first"
        text += f": {why}" if why else ""
    elif trouble := checks.trouble(members, done):
        state, text = INCOMPLETE, f"no node is to blame by itself: {trouble}"
    else:
        state, text = PASSED, f"{len(names)} replicas: {checks.times(members, done)}"
    found: Told = {
        **avoidance.kept(report.status),
        "attempt": job.ledger.floor,
        "state": state,
        "time": render(job.now),
        "message": text,
    }
    if bad:
        found["badNodes"] = [
            {"replica": b.pod, "node": nodes.get(b.pod, ""), "reason": b.why} for b in bad[:MOST]
        ]
    kind = "Normal" if state == PASSED else "Warning"
    report.events.append(Event(kind, EventReason.NODE_CHECK.value, f"{_WORDS[state]}: {text}."))
    if bad:
        avoidance.begin(job, found, report)
    report.status["nodeCheck"] = found


_WORDS = {
    PASSED: "The nodes have passed their check",
    BAD: "A node did badly in the check before the start",
    INCOMPLETE: "The check of the nodes is not complete",
}


def _stored(status: Mapping[str, Any]) -> Told | None:
    """As it was told; what others wrote there and makes no sense was never told."""
    found = status.get("nodeCheck")
    if not isinstance(found, dict) or not found.keys() >= {"attempt", "state", "time"}:
        return None
    return found if parse(found["time"]) is not None else None


def _members(found: Told) -> list[Told]:
    wanted = {"replica", "host", "port"}
    listed = found.get("members") or ()
    return [each for each in listed if isinstance(each, dict) and each.keys() >= wanted]
