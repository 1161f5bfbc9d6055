"""Nodes that are tested before the start: `status.nodeCheck`, an event, and a word for each pod.

What is decided stands in the status: who takes part, when all were ready or had their time, and
what came of it. By that a pod is told to wait, to begin, or to start its command; so another
controller goes on where one ended (decision 295).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from trainyard.lifecycle.actions import Event
from trainyard.lifecycle.in_place import in_place_restart
from trainyard.lifecycle.node_check import node_check_avoidance, node_check_results
from trainyard.lifecycle.node_check.node_check_results import EVENT_REASON, NodeCheckReport
from trainyard.lifecycle.observed import Pod
from trainyard.lifecycle.policy import PodReport, PolicyResult
from trainyard.lifecycle.reconcile_context import ReconcileContext
from trainyard.lifecycle.status.status_builder import StatusBuilder
from trainyard.schema.times import earliest, parse, render

ROUND_SECONDS = 45
"""How long a round may take."""
_READY_LIMIT = timedelta(seconds=120)
"""How long one that runs may take to say that it takes part."""
_ANSWER_LIMIT = timedelta(seconds=15)
"""And, when the last round is over, to say how it went."""
CHECKING, PASSED, BAD, INCOMPLETE = "Checking", "Passed", "BadNodes", "Incomplete"
MAX_NAMED = 8
"""Bad ones that are named."""
WAIT, START = {"say": "wait"}, {"say": "start"}

StatusField = dict[str, Any]


def instruction_for_pod(status: Mapping[str, Any], pod: Pod) -> StatusField:
    """What a pod is told that asks."""
    found = _stored_check(status)
    if found is None or found["attempt"] < pod.attempt:
        return dict(WAIT)
    leaving = node_check_avoidance.pods_leaving(status)
    if leaving and (
        pod.name in leaving
        or in_place_restart.instruction_for_pod(status, pod)["wanted"] > pod.attempt
    ):
        return dict(WAIT)  # it is about to go
    members = _members(found)
    names = [each["replica"] for each in members]
    if found["state"] != CHECKING or found["attempt"] > pod.attempt or pod.name not in names:
        return dict(START)
    own, pairs = names.index(pod.name), []
    drawn = node_check_results.pairing_rounds(len(members))
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


POD_REPORT = PodReport("nodeCheck", "node_checks", NodeCheckReport.decode, instruction_for_pod)


def evaluate(context: ReconcileContext, status: StatusBuilder) -> PolicyResult:
    """Go on with the test of this start.

    Replicas whose nodes are avoided for what came of it count as taken away from here on. Wakes
    when the test, or the search for another node, has taken too long.
    """
    due = _advance(context, status)
    context, unplaced = node_check_avoidance.take_misplaced_pods(context, status)
    return PolicyResult(wake_at=earliest(due, unplaced), context=context)


def _advance(context: ReconcileContext, status: StatusBuilder) -> datetime | None:
    if not context.workload.node_check:
        status.fields.pop("nodeCheck", None)
        return None
    reports = _current_reports(context)
    found = _stored_check(context.before)
    if found is None or found["attempt"] != context.internal.floor:
        return _begin_when_ready(context, reports, status)
    if found["state"] != CHECKING:
        return None
    names = [each["replica"] for each in _members(found)]
    run, began = found["time"], parse(found["time"])
    assert began is not None
    silent = [name for name in names if _is_awaited(context, reports.get(name), name, run)]
    seconds = ROUND_SECONDS * len(node_check_results.pairing_rounds(len(names)))
    due = began + timedelta(seconds=seconds) + _ANSWER_LIMIT
    if silent and context.now < due:
        return due
    done = {
        name: each
        for name in names
        if (each := reports.get(name)) is not None
        and (each.stage, each.run) == (node_check_results.DONE, run)
    }
    # Of one that could not stay nothing is known, and one that says nothing may be cut off.
    gone = {name for name in names if name not in done and name not in silent}
    _conclude(
        context, names, {name: each.without(gone) for name, each in done.items()}, reports, status
    )
    return None


def _current_reports(context: ReconcileContext) -> dict[str, NodeCheckReport]:
    """What the pods of this start have told, by name."""
    received = context.observed.reports.node_checks
    return {
        replica.name: found
        for replica in context.view.replicas
        if replica.pod is not None and (found := received.get(replica.name)) is not None
        if (found.uid, found.attempt) == (replica.pod.uid, context.internal.floor)
    }


def _begin_when_ready(
    context: ReconcileContext, reports: Mapping[str, NodeCheckReport], status: StatusBuilder
) -> datetime | None:
    """Have the test begin once all are ready, or those that are not have had their time."""
    wake_at, waits = None, False
    for replica in context.view.replicas:
        found = reports.get(replica.name)
        if found is not None and found.stage != node_check_results.BEGUN:
            continue
        if replica.ended:
            continue
        since = replica.pod.started if replica.pod is not None else None
        if found is not None or since is None:
            waits = True
        elif context.now < since + _READY_LIMIT:
            waits, wake_at = True, earliest(wake_at, since + _READY_LIMIT)
    # One that restarts in its pod is not tested again.
    was_tested = context.internal.floor > 1 and context.workload.in_place is not None
    if waits or not (reports or (context.view.replicas and not was_tested)):
        return wake_at
    ready = {
        name: each
        for name, each in reports.items()
        if each.port and each.stage != node_check_results.LEFT
    }
    if not ready:
        _conclude(context, (), {}, reports, status)
        return None
    members = [{"replica": n, "host": c.host, "port": c.port} for n, c in ready.items()]
    status.fields["nodeCheck"] = {
        **node_check_avoidance.kept_fields(status.fields),
        "attempt": context.internal.floor,
        "state": CHECKING,
        "time": render(context.now),
        "message": f"{len(members)} replicas take part",
        "members": members,
    }
    return context.now + _ANSWER_LIMIT


def _is_awaited(
    context: ReconcileContext, report: NodeCheckReport | None, name: str, run: str
) -> bool:
    """Whether one that takes part may yet say how it went."""
    replica = next((each for each in context.view.replicas if each.name == name), None)
    if replica is None or replica.pod is None or replica.ended:
        return False
    return report is None or not (
        report.stage == node_check_results.LEFT
        or (report.stage, report.run) == (node_check_results.DONE, run)
    )


def _conclude(
    context: ReconcileContext,
    members: Sequence[str],
    done: Mapping[str, NodeCheckReport],
    reports: Mapping[str, NodeCheckReport],
    status: StatusBuilder,
) -> None:
    """Put into the status what came of it, with an event."""
    names = {replica.name: replica.short_name for replica in context.view.replicas}
    nodes = {r.name: r.pod.node for r in context.view.replicas if r.pod is not None}
    bad = node_check_results.find_bad_nodes(members, done, nodes)
    missing = [names[name] for name in names if name not in done]
    if bad:
        state = BAD
        text = "; ".join(
            f"{names[b.pod]} on {nodes.get(b.pod) or '?'}: {b.why}" for b in bad[:MAX_NAMED]
        )
    elif missing:
        state = INCOMPLETE
        why = next(
            (each.error for each in reports.values() if each.stage == node_check_results.LEFT), ""
        )
        text = f"{len(missing)} of {len(names)} replicas were not tested, {missing[0]} first"
        text += f": {why}" if why else ""
    elif problem := node_check_results.first_pair_problem(members, done):
        state, text = INCOMPLETE, f"no node is to blame by itself: {problem}"
    else:
        state, text = (
            PASSED,
            f"{len(names)} replicas: {node_check_results.describe_times(members, done)}",
        )
    found: StatusField = {
        **node_check_avoidance.kept_fields(status.fields),
        "attempt": context.internal.floor,
        "state": state,
        "time": render(context.now),
        "message": text,
    }
    if bad:
        found["badNodes"] = [
            {"replica": b.pod, "node": nodes.get(b.pod, ""), "reason": b.why}
            for b in bad[:MAX_NAMED]
        ]
    kind = "Normal" if state == PASSED else "Warning"
    status.events.append(Event(kind, EVENT_REASON, f"{_HEADLINES[state]}: {text}."))
    if bad:
        node_check_avoidance.avoid_bad_nodes(context, found, status)
    status.fields["nodeCheck"] = found


_HEADLINES = {
    PASSED: "The nodes have passed their check",
    BAD: "A node did badly in the check before the start",
    INCOMPLETE: "The check of the nodes is not complete",
}


def _stored_check(status: Mapping[str, Any]) -> StatusField | None:
    """As it was told; what others wrote there and makes no sense was never told."""
    found = status.get("nodeCheck")
    if not isinstance(found, dict) or not found.keys() >= {"attempt", "state", "time"}:
        return None
    return found if parse(found["time"]) is not None else None


def _members(found: StatusField) -> list[StatusField]:
    wanted = {"replica", "host", "port"}
    listed = found.get("members") or ()
    return [each for each in listed if isinstance(each, dict) and each.keys() >= wanted]
