"""One pass over one TensorBoard: the pod that shows the logs, its Service, and what to tell.

The pod restarts its own containers. It is replaced when its spec changes, and when it is lost for
good: evicted, deleted, or ended with its node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from trainyard.api.reasons import BoardCondition, BoardPhase, BoardReason
from trainyard.lifecycle import lost
from trainyard.lifecycle.actions import Action, Create, Delete, Event, Plan
from trainyard.lifecycle.clock import earliest
from trainyard.lifecycle.conditions import Conditions
from trainyard.lifecycle.creation import Hurdles
from trainyard.lifecycle.observed import Container, Observed, Owned, Pod
from trainyard.lifecycle.texts import last_lines
from trainyard.workloads.board import PORT, PROGRAM, Board
from trainyard.workloads.resources import PODS, SERVICES
from trainyard.workloads.settings import Settings

_NOT_FOUND = 127
"""Exit code of a shell, and of this project's nodes, for a program that is not there."""
_ABSENT = ("not found", "no such file")
_STILL_STARTING = ("", "ContainerCreating", "PodInitializing")
_CANNOT_START = ("StartError", "ContainerCannotRun", "RunContainerError")
_RECREATE_SECONDS = 30.0
"""A pod that failed is kept this long from its creation, so that one that always fails (a node
without room evicts it again and again) is not created in a circle."""


@dataclass(frozen=True, slots=True)
class _State:
    """Where the viewer stands, as the condition Ready tells it."""

    phase: BoardPhase
    reason: BoardReason
    message: str
    is_warning: bool = False


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
    actions, wake_at = _actions(board, pod, service, Hurdles.of(observed, settings), now, settings)
    forced, later = lost.force(pods, now, settings)
    url = _url(board, service, settings)
    state = _state(board, pod, observed)
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
    state = _State(BoardPhase.FAILED, BoardReason.INVALID_SPEC, text, is_warning=True)
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
    hurdles: Hurdles,
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
        clear, until = hurdles.judge(create, now)
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


def _state(board: Board, pod: Pod | None, observed: Observed) -> _State:
    if board.suspended:
        return _State(BoardPhase.SUSPENDED, BoardReason.SUSPENDED, "spec.suspend is true.")
    if not board.has_logs:
        text = "the spec names no logs that can be shown; set logDir."
        return _State(BoardPhase.FAILED, BoardReason.NO_LOGS, text, is_warning=True)
    for conflict in observed.conflicts:
        text = (
            f"cannot create {conflict.resource.plural} {conflict.name}: the name is held by "
            f"{conflict.owner}; delete that object."
        )
        return _State(BoardPhase.FAILED, BoardReason.NAME_CONFLICT, text, is_warning=True)
    for refusal in observed.refusals:
        text = (
            f"the server refuses to create {refusal.resource.plural} {refusal.name} "
            f"({refusal.code}): {refusal.message}"
        )
        return _State(BoardPhase.PENDING, BoardReason.CREATION_REFUSED, text, is_warning=True)
    if pod is None or pod.deleting is not None:
        text = f"Pod[{board.pod_name}] is being created."
        return _State(BoardPhase.PENDING, BoardReason.STARTING, text)
    return _state_of(board, pod)


def _state_of(board: Board, pod: Pod) -> _State:
    container = pod.container(PROGRAM)
    if pod.phase in ("Failed", "Succeeded"):
        return _crashed(board, pod, container)
    if pod.unschedulable and not pod.scheduled:
        text = f"Pod[{pod.name}] cannot be scheduled: {pod.unschedulable}"
        return _State(BoardPhase.PENDING, BoardReason.UNSCHEDULABLE, text)
    if container is None:
        return _starting(pod)
    if container.state == "Running":
        if container.ready:
            text = "TensorBoard runs and can be opened."
            return _State(BoardPhase.RUNNING, BoardReason.RUNNING, text)
        return _starting(pod)
    if container.state == "Waiting" and container.reason in _STILL_STARTING:
        return _starting(pod)
    if container.exit_code is None and container.last_exit_code is None:
        text = f"TensorBoard cannot be started: {container.reason} {container.message}".rstrip()
        return _State(BoardPhase.FAILED, BoardReason.CRASHED, text, is_warning=True)
    return _crashed(board, pod, container)


def _starting(pod: Pod) -> _State:
    return _State(BoardPhase.PENDING, BoardReason.STARTING, f"Pod[{pod.name}] is starting.")


def _crashed(board: Board, pod: Pod, container: Container | None) -> _State:
    code = container.exit_code if container else None
    message = container.message if container else ""
    if container is not None and code is None:
        code, message = container.last_exit_code, container.last_message
    said = last_lines(message)
    if _is_missing(code, container, message):
        text = (
            f"there is no program `{PROGRAM}` in the image {board.image} ({said or 'exit 127'}): "
            f"install it there (pip install tensorboard), or name another in spec.image."
        )
        return _State(BoardPhase.FAILED, BoardReason.PROGRAM_MISSING, text, is_warning=True)
    if code is None:
        text = f"Pod[{pod.name}] has failed: {pod.reason or 'Error'} {pod.message}".rstrip()
    else:
        text = f"TensorBoard ended with exit code {code}; it is started again."
        text += f"\n{said}" if said else ""
    return _State(BoardPhase.FAILED, BoardReason.CRASHED, text, is_warning=True)


def _is_missing(code: int | None, container: Container | None, message: str) -> bool:
    if code == _NOT_FOUND:
        return True
    reason = container.reason if container else ""
    return reason in _CANNOT_START and any(text in message for text in _ABSENT)


def _tell(
    conditions: Conditions, kind: BoardCondition, state: _State, *, is_true: bool
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
    state = _logs(board, pod)
    is_true = state.reason is BoardReason.ALL_SERVED
    events = _tell(conditions, BoardCondition.LOGS_SERVED, state, is_true=is_true)
    return [event for event in events if event.type == "Warning"]


def _logs(board: Board, pod: Pod | None) -> _State:
    phase = BoardPhase.RUNNING  # of no account here
    lacking = list(board.unserved)
    fetchers = [pod.container(name) if pod else None for name in board.fetchers]
    waiting = [fetcher for fetcher in fetchers if fetcher is None or not fetcher.ready]
    failures = [text for fetcher in waiting if (text := _failure(fetcher))]
    if lacking or failures:
        reason = BoardReason.FETCH_FAILED if failures else BoardReason.NOT_SERVED
        text = "not shown: " + "; ".join([*lacking, *failures])
        return _State(phase, reason, text, is_warning=True)
    if waiting and not board.suspended:
        return _State(phase, BoardReason.FETCHING, "Some logs are being fetched.")
    return _State(phase, BoardReason.ALL_SERVED, "All logs that the spec names are shown.")


def _failure(fetcher: Container | None) -> str:
    """What a container that fetches ended with; "" while it has not failed."""
    if fetcher is None:
        return ""
    if fetcher.failed:
        return last_lines(fetcher.message) or f"{fetcher.name}: exit code {fetcher.exit_code}"
    if fetcher.last_exit_code:
        return last_lines(fetcher.last_message) or f"{fetcher.name}: exit {fetcher.last_exit_code}"
    if fetcher.state == "Waiting" and fetcher.reason not in _STILL_STARTING:
        return f"{fetcher.reason} {fetcher.message}".rstrip()
    return ""


def _status(
    board: Board,
    before: Mapping[str, Any],
    state: _State,
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
