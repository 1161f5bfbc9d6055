"""Nodes that a job's pods are kept off, since they did badly in the check before a start.

Which they are stands in `status.nodeCheck`; pods that are created since say so by an affinity. The
replica on such a node counts as taken away before its command has started. Where pods find no other
node, the job goes on without (decisions 316 and 317).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from trainyard.kinds.shared.workload import Manifest
from trainyard.lifecycle.actions import Event
from trainyard.lifecycle.node_check.node_check_annotation import AVOIDS
from trainyard.lifecycle.node_check.node_check_results import EVENT_REASON
from trainyard.lifecycle.policy import PodEdit
from trainyard.lifecycle.reconcile_context import ReconcileContext
from trainyard.lifecycle.replica_state import Exit, State
from trainyard.lifecycle.replica_view import Replica
from trainyard.lifecycle.status.status_builder import StatusBuilder
from trainyard.schema.times import earliest, render

MAX_AVOIDED_NODES = 8
"""Nodes that a job avoids; so many free restarts at most come of it."""
UNSCHEDULABLE_LIMIT = timedelta(seconds=120)
"""How long pods may find no other node."""
BAD_NODE, NO_OTHER_NODE = "BadNode", "NoOtherNode"
"""Why a replica gets another pod: its node is avoided; it is not any more."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_KEPT_FIELDS = ("avoided", "avoidanceEnded")
"""What outlives a check."""

StatusField = dict[str, Any]


def avoided_nodes(status: Mapping[str, Any]) -> tuple[str, ...]:
    """Those that the job's pods are kept off."""
    found = _stored_check(status).get("avoided")
    return (
        tuple(filter(_is_nonempty_string, found))[:MAX_AVOIDED_NODES]
        if isinstance(found, list)
        else ()
    )


def kept_fields(status: Mapping[str, Any]) -> StatusField:
    """What the next check takes over of `status.nodeCheck`."""
    return {key: value for key, value in _stored_check(status).items() if key in _KEPT_FIELDS}


def avoid_bad_nodes(context: ReconcileContext, found: StatusField, status: StatusBuilder) -> None:
    """Avoid the bad nodes that a check has `found`, where others of the job are elsewhere."""
    before = avoided_nodes(status.fields)
    bad = {each["node"] for each in found["badNodes"]}
    others = {r.pod.node for r in context.view.replicas if r.pod is not None} - bad - {""}
    if "avoidanceEnded" in _stored_check(status.fields) or not others:
        return
    more = sorted(bad - {"", *before})[: MAX_AVOIDED_NODES - len(before)]
    if not more:
        return
    found["avoided"] = [*before, *more]
    for each in found["badNodes"]:
        if each["node"] in more:
            each["avoided"] = True
    text = f"Pods of this job are kept off {', '.join(more)} from now on."
    status.events.append(Event("Normal", EVENT_REASON, text))


def pods_leaving(status: Mapping[str, Any]) -> dict[str, str]:
    """Pods that are to leave their nodes by the last check, and these nodes."""
    found = _stored_check(status).get("badNodes")
    listed = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else ()
    return {
        each["replica"]: each["node"]
        for each in listed
        if each.get("avoided")
        and _is_nonempty_string(each.get("replica"))
        and _is_nonempty_string(each.get("node"))
    }


def take_misplaced_pods(
    context: ReconcileContext, status: StatusBuilder
) -> tuple[ReconcileContext, datetime | None]:
    """The same with those as taken away that are on a node that is avoided since, or that have
    found none for too long; when to look again."""
    going: dict[str, Exit] = {}
    if _stored_check(status.fields).get("attempt") == context.internal.floor:
        going = _on_bad_nodes(context, pods_leaving(status.fields))
    wake_at, unplaced = None, []
    for replica in context.view.not_running:
        pod = replica.pod
        if pod is None or pod.created is None or replica.state is State.TAKEN:
            continue
        if AVOIDS not in dict(pod.annotations):
            continue
        due = pod.created + UNSCHEDULABLE_LIMIT
        if context.now < due:
            wake_at = wake_at if pod.scheduled else earliest(wake_at, due)
        elif pod.unschedulable:
            unplaced.append(replica)
            going[replica.name] = Exit(reason=NO_OTHER_NODE, message=pod.unschedulable, free=True)
    if unplaced:
        _stop_avoiding(unplaced[0], context.now, status)
    return _mark_as_taken(context, going), wake_at


def _on_bad_nodes(context: ReconcileContext, leaving: Mapping[str, str]) -> dict[str, Exit]:
    return {
        r.name: Exit(reason=BAD_NODE, free=True)
        for r in context.view.replicas
        if r.state in (State.RUNNING, State.PENDING) and r.pod is not None
        if r.pod.attempt == context.internal.floor and leaving.get(r.name) == r.pod.node
    }


def _mark_as_taken(context: ReconcileContext, going: Mapping[str, Exit]) -> ReconcileContext:
    return context.with_replicas(
        {
            r.name: r._replace(state=State.TAKEN, exit=going[r.name])
            for r in context.view.replicas
            if r.name in going
        }
    )


def _stop_avoiding(unplaced: Replica, now: datetime, status: StatusBuilder) -> None:
    """Avoid nothing any more: training on a slow node beats none."""
    avoided = avoided_nodes(status.fields)
    if not avoided:
        return
    found = {key: value for key, value in _stored_check(status.fields).items() if key != "avoided"}
    status.fields["nodeCheck"] = {**found, "avoidanceEnded": render(now)}
    text = (
        f"Pods of this job are kept off {', '.join(avoided)} no longer: Pod[{unplaced.name}] has "
        f"found no other node for {UNSCHEDULABLE_LIMIT.total_seconds():g} s."
    )
    status.events.append(Event("Warning", EVENT_REASON, text))


def pod_edit(status: Mapping[str, Any]) -> PodEdit | None:
    """What keeps new pods off the nodes that the status names; None where it names none."""
    avoided = avoided_nodes(status)
    return partial(add_node_affinity, avoided=avoided) if avoided else None


def add_node_affinity(pod: Manifest, avoided: Sequence[str]) -> Manifest:
    """The pod, kept off these nodes besides what its own affinity asks for.

    By the nodes' names, which their label `kubernetes.io/hostname` need not have.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    if spec.get("nodeName"):  # its kubelet would refuse it
        return pod
    affinity = spec.get("affinity") or {}
    by_node = affinity.get("nodeAffinity") or {}
    terms = (by_node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
    others = [{"key": "metadata.name", "operator": "NotIn", "values": [each]} for each in avoided]
    # One of the terms has to match, and an empty one matches nothing.
    terms = [_narrow_term(term, others) for term in terms] or [{"matchFields": others}]
    by_node = {**by_node, _REQUIRED: {"nodeSelectorTerms": terms}}
    annotations = {**(metadata.get("annotations") or {}), AVOIDS: ",".join(avoided)}
    return {
        **pod,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {**spec, "affinity": {**affinity, "nodeAffinity": by_node}},
    }


def _narrow_term(term: Mapping[str, Any], others: Sequence[StatusField]) -> Mapping[str, Any]:
    if not (term.get("matchExpressions") or term.get("matchFields")):
        return term
    return {**term, "matchFields": [*(term.get("matchFields") or ()), *others]}


def _stored_check(status: Mapping[str, Any]) -> Mapping[str, Any]:
    found = status.get("nodeCheck")
    return found if isinstance(found, dict) else {}


def _is_nonempty_string(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
