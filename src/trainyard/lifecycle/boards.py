"""One pass over one TensorBoard: the pod that shows the logs, its Service, and what to tell.

The pod restarts its own containers. It is replaced when its spec changes, and when it is lost for
good: evicted, deleted, or ended with its node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from trainyard.kinds.shared.reasons import BoardCondition, BoardPhase, BoardReason
from trainyard.kinds.shared.settings import Settings
from trainyard.kinds.tensorboard.workload import PORT, Board
from trainyard.kube.resources import PODS, SERVICES
from trainyard.lifecycle import boardstates, deletion
from trainyard.lifecycle.actions import Action, Create, Delete, Event, Plan
from trainyard.lifecycle.boardstates import State
from trainyard.lifecycle.conditions import Conditions
from trainyard.lifecycle.observed import Observed, Owned, Pod
from trainyard.lifecycle.refusals import BlockedCreations
from trainyard.schema.times import earliest

_RECREATE_SECONDS = 30.0
"""A pod that failed is kept this long from its creation, so that one that always fails (a node
without room evicts it again and again) is not created in a circle."""


def plan_board(
    board: Board,
    status: Mapping[str, Any] | None,
    observed: Observed,
    now: datetime,
    settings: Settings,
) -> Plan:
    """What to do for a TensorBoard, and what its status then is."""
    pods = [pod for pod in observed.pods if pod.owner_uid == board.uid]
    pod = next((pod for pod in pods if pod.name == board.pod_name), None)
    service = next(
        (
            owned
            for owned in observed.owned
            if owned.owner_uid == board.uid and owned.resource == SERVICES
        ),
        None,
    )
    actions, wake_at = _actions(
        board, pod, service, BlockedCreations.of(observed, settings), now, settings
    )
    forced, later = deletion.force(pods, now, settings)
    url = _url(board, service, settings)
    state = boardstates.of_viewer(board, pod, observed)
    before = dict(status or {})
    conditions = Conditions(before.get("conditions") or (), now)
    events = [
        *_tell(conditions, BoardCondition.READY, state, is_true=state.phase is BoardPhase.RUNNING),
        *_tell_logs(conditions, board, pod),
    ]
    new = _status(board, before, state, conditions, pod, url)
    return Plan(
        new if new != before else None,
        (*actions, *forced),
        tuple(events),
        earliest(wake_at, later),
    )


def plan_invalid_board(
    generation: int, problems: Sequence[str], status: Mapping[str, Any] | None, now: datetime
) -> Plan:
    """A TensorBoard that breaks rules: what runs goes on running, and the paths are told."""
    before = dict(status or {})
    conditions = Conditions(before.get("conditions") or (), now)
    text = "the spec is invalid: " + "; ".join(problems)
    state = State(BoardPhase.FAILED, BoardReason.INVALID_SPEC, text, is_warning=True)
    events = _tell(conditions, BoardCondition.READY, state, is_true=False)
    new = before | {
        "phase": str(state.phase),
        "conditions": conditions.encode(),
        "observedGeneration": generation,
    }
    return Plan(new if new != before else None, events=tuple(events))


# What to do.


def _actions(
    board: Board,
    pod: Pod | None,
    service: Owned | None,
    blocked: BlockedCreations,
    now: datetime,
    settings: Settings,
) -> tuple[list[Action], datetime | None]:
    creates: list[Create] = []
    actions: list[Action] = []
    wake_at: datetime | None = None
    if service is None:
        build = partial(board.service.manifest, board.service.name)
        creates.append(Create(SERVICES, board.service.name, build))
    if pod is None:
        if _wants_pod(board):
            creates.append(Create(PODS, board.pod_name, lambda: board.pod))
    elif pod.deleting is None:
        due = _replaced_at(board, pod, now)
        if due is not None and due <= now:
            actions.append(Delete(PODS, pod.name, pod.uid))
        else:
            wake_at = due
    for create in creates:
        clear, until = blocked.judge(create, now)
        if clear:
            actions.append(create)
        else:
            wake_at = earliest(wake_at, until)
    return actions, wake_at


def _wants_pod(board: Board) -> bool:
    return board.has_logs and not board.suspended


def _replaced_at(board: Board, pod: Pod, now: datetime) -> datetime | None:
    """When the pod has to go; None: it may stay."""
    if not _wants_pod(board) or pod.revision != board.revision:
        return now
    if pod.phase in ("Failed", "Succeeded"):
        return (pod.created or now) + timedelta(seconds=_RECREATE_SECONDS)
    return None


def _url(board: Board, service: Owned | None, settings: Settings) -> str | None:
    if service is None:
        return None
    host = settings.boards.node_port_host
    if not host:
        domain = f"{board.namespace}.svc.{settings.cluster_domain}"
        return f"http://{board.service.name}.{domain}:{PORT}"
    ports = (port.get("nodePort") for port in service.spec.get("ports") or ())
    node_port = next((port for port in ports if port), None)
    return f"http://{host}:{node_port}" if node_port else None


# What to tell.


def _tell(
    conditions: Conditions, kind: BoardCondition, state: State, *, is_true: bool
) -> list[Event]:
    """Set the condition; an event when it becomes true, and on every new trouble."""
    before = conditions.get(kind)
    was_true = before.get("status") == "True"
    conditions.set(kind, is_true, state.reason, state.message)
    if state.is_warning:
        known = (before.get("reason"), before.get("message")) == (state.reason, state.message)
        return [] if known else [Event("Warning", str(state.reason), state.message)]
    return [Event("Normal", str(state.reason), state.message)] if is_true and not was_true else []


def _tell_logs(conditions: Conditions, board: Board, pod: Pod | None) -> list[Event]:
    state = boardstates.of_logs(board, pod)
    is_true = state.reason is BoardReason.ALL_SERVED
    events = _tell(conditions, BoardCondition.LOGS_SERVED, state, is_true=is_true)
    return [event for event in events if event.type == "Warning"]


def _status(
    board: Board,
    before: Mapping[str, Any],
    state: State,
    conditions: Conditions,
    pod: Pod | None,
    url: str | None,
) -> dict[str, Any]:
    new = {
        **before,
        "phase": str(state.phase),
        "conditions": conditions.encode(),
        "observedGeneration": board.generation,
    }
    new.pop("pod", None)
    new.pop("url", None)
    if pod is not None:
        reference = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
        }
        new["pod"] = {"reference": reference, "phase": pod.phase}
    if url:
        new["url"] = url
    return new
