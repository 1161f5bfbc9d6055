"""Nodes that a job's pods are kept off, since they did badly in the check before a start.

Which they are stands in `status.nodeCheck`; pods that are created since say so by an affinity. The
replica on such a node counts as taken away before its command has started. Where pods find no other
node, the job goes on without (decisions 316 and 317).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.reasons import EventReason
from trainyard.kinds.shared.workload import Manifest
from trainyard.lifecycle.actions import Event
from trainyard.lifecycle.outcomes import Exit, State
from trainyard.lifecycle.passes import Pass
from trainyard.lifecycle.replicas import Replica
from trainyard.lifecycle.report import Report
from trainyard.schema.times import earliest, render

MOST = 8
"""Nodes that a job avoids; so many free restarts at most come of it."""
PATIENCE = timedelta(seconds=120)
"""How long pods may find no other node."""
BAD_NODE, NO_OTHER_NODE = "BadNode", "NoOtherNode"
"""Why a replica gets another pod: its node is avoided; it is not any more."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_KEPT = ("avoided", "avoidanceEnded")
"""What outlives a check."""

Told = dict[str, Any]


def nodes(status: Mapping[str, Any]) -> tuple[str, ...]:
    """Those that the job's pods are kept off."""
    found = _check(status).get("avoided")
    return tuple(filter(_is_name, found))[:MOST] if isinstance(found, list) else ()


def kept(status: Mapping[str, Any]) -> Told:
    """What the next check takes over of `status.nodeCheck`."""
    return {key: value for key, value in _check(status).items() if key in _KEPT}


def begin(job: Pass, found: Told, report: Report) -> None:
    """Avoid the bad nodes that a check has `found`, where others of the job are elsewhere."""
    before = nodes(report.status)
    bad = {each["node"] for each in found["badNodes"]}
    others = {r.pod.node for r in job.view.replicas if r.pod is not None} - bad - {""}
    if "avoidanceEnded" in _check(report.status) or not others:
        return
    more = sorted(bad - {"", *before})[: MOST - len(before)]
    if not more:
        return
    found["avoided"] = [*before, *more]
    for each in found["badNodes"]:
        if each["node"] in more:
            each["avoided"] = True
    text = f"Pods of this job are kept off {', '.join(more)} from now on."
    report.events.append(Event("Normal", EventReason.NODE_CHECK.value, text))


def leaves(status: Mapping[str, Any]) -> dict[str, str]:
    """Pods that are to leave their nodes by the last check, and these nodes."""
    found = _check(status).get("badNodes")
    listed = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else ()
    return {
        each["replica"]: each["node"]
        for each in listed
        if each.get("avoided") and _is_name(each.get("replica")) and _is_name(each.get("node"))
    }


def give_up(job: Pass, report: Report) -> tuple[Pass, datetime | None]:
    """The same with those as taken away that are on a node that is avoided since, or that have
    found none for too long; when to look again."""
    going: dict[str, Exit] = {}
    if _check(report.status).get("attempt") == job.ledger.floor:
        going = _on_bad_nodes(job, leaves(report.status))
    wake_at, unplaced = None, []
    for replica in job.view.not_running:
        pod = replica.pod
        if pod is None or not pod.avoids or pod.created is None or replica.state is State.TAKEN:
            continue
        due = pod.created + PATIENCE
        if job.now < due:
            wake_at = wake_at if pod.scheduled else earliest(wake_at, due)
        elif pod.unschedulable:
            unplaced.append(replica)
            going[replica.name] = Exit(reason=NO_OTHER_NODE, message=pod.unschedulable, free=True)
    if unplaced:
        _end(unplaced[0], job.now, report)
    return _without(job, going), wake_at


def _on_bad_nodes(job: Pass, leaving: Mapping[str, str]) -> dict[str, Exit]:
    return {
        r.name: Exit(reason=BAD_NODE, free=True)
        for r in job.view.replicas
        if r.state in (State.RUNNING, State.PENDING) and r.pod is not None
        if r.pod.attempt == job.ledger.floor and leaving.get(r.name) == r.pod.node
    }


def _without(job: Pass, going: Mapping[str, Exit]) -> Pass:
    if not going:
        return job
    replicas = [
        r._replace(state=State.TAKEN, exit=going[r.name]) if r.name in going else r
        for r in job.view.replicas
    ]
    not_running = [r for r in replicas if r.state is not State.RUNNING]
    return replace(job, view=job.view._replace(replicas=replicas, not_running=not_running))


def _end(unplaced: Replica, now: datetime, report: Report) -> None:
    """Avoid nothing any more: training on a slow node beats none."""
    avoided = nodes(report.status)
    if not avoided:
        return
    found = {key: value for key, value in _check(report.status).items() if key != "avoided"}
    report.status["nodeCheck"] = {**found, "avoidanceEnded": render(now)}
    text = (
        f"Pods of this job are kept off {', '.join(avoided)} no longer: Pod[{unplaced.name}] has "
        f"found no other node for {PATIENCE.total_seconds():g} s."
    )
    report.events.append(Event("Warning", EventReason.NODE_CHECK.value, text))


def placed(build: Callable[[], Manifest], avoided: Sequence[str]) -> Manifest:
    """The pod, kept off these nodes besides what its own affinity asks for.

    By the nodes' names, which their label `kubernetes.io/hostname` need not have.
    """
    pod = build()
    metadata, spec = pod["metadata"], pod["spec"]
    if spec.get("nodeName"):  # its kubelet would refuse it
        return pod
    affinity = spec.get("affinity") or {}
    by_node = affinity.get("nodeAffinity") or {}
    terms = (by_node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
    others = [{"key": "metadata.name", "operator": "NotIn", "values": [each]} for each in avoided]
    # One of the terms has to match, and an empty one matches nothing.
    terms = [_narrowed(term, others) for term in terms] or [{"matchFields": others}]
    by_node = {**by_node, _REQUIRED: {"nodeSelectorTerms": terms}}
    annotations = {**(metadata.get("annotations") or {}), labels.AVOIDS: ",".join(avoided)}
    return {
        **pod,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {**spec, "affinity": {**affinity, "nodeAffinity": by_node}},
    }


def _narrowed(term: Mapping[str, Any], others: Sequence[Told]) -> Mapping[str, Any]:
    if not (term.get("matchExpressions") or term.get("matchFields")):
        return term
    return {**term, "matchFields": [*(term.get("matchFields") or ()), *others]}


def _check(status: Mapping[str, Any]) -> Mapping[str, Any]:
    found = status.get("nodeCheck")
    return found if isinstance(found, dict) else {}


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
