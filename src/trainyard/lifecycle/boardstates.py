"""Where a TensorBoard stands, as its conditions tell it: the viewer, and the logs that it shows."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.kinds.shared.reasons import BoardPhase, BoardReason
from trainyard.kinds.tensorboard.workload import PROGRAM, Board
from trainyard.lifecycle import texts
from trainyard.lifecycle.observed import Container, Observed, Pod

_NOT_FOUND = 127
"""Exit code of a shell, and of this project's nodes, for a program that is not there."""
_ABSENT = ("not found", "no such file")
_STILL_STARTING = ("", "ContainerCreating", "PodInitializing")
_CANNOT_START = ("StartError", "ContainerCannotRun", "RunContainerError")


@dataclass(frozen=True, slots=True)
class State:
    """One condition, and the phase that goes with it."""

    phase: BoardPhase
    reason: BoardReason
    message: str
    is_warning: bool = False


def of_viewer(board: Board, pod: Pod | None, observed: Observed) -> State:
    """The condition Ready: whether the page can be opened, and if not, why."""
    if board.suspended:
        return State(BoardPhase.SUSPENDED, BoardReason.SUSPENDED, "spec.suspend is true.")
    if not board.has_logs:
        text = "the spec names no logs that can be shown; set logDir."
        return State(BoardPhase.FAILED, BoardReason.NO_LOGS, text, is_warning=True)
    for conflict in observed.conflicts:
        text = f"{texts.name_taken(conflict)}."
        return State(BoardPhase.FAILED, BoardReason.NAME_CONFLICT, text, is_warning=True)
    for refusal in observed.refusals:
        text = texts.refused(refusal)
        return State(BoardPhase.PENDING, BoardReason.CREATION_REFUSED, text, is_warning=True)
    if pod is None or pod.deleting is not None:
        text = f"Pod[{board.pod_name}] is being created."
        return State(BoardPhase.PENDING, BoardReason.STARTING, text)
    return _of_pod(board, pod)


def _of_pod(board: Board, pod: Pod) -> State:
    container = pod.container(PROGRAM)
    if pod.phase in ("Failed", "Succeeded"):
        return _crashed(board, pod, container)
    if pod.unschedulable and not pod.scheduled:
        text = f"Pod[{pod.name}] cannot be scheduled: {pod.unschedulable}"
        return State(BoardPhase.PENDING, BoardReason.UNSCHEDULABLE, text)
    if container is None:
        return _starting(pod)
    if container.state == "Running":
        if container.ready:
            text = "TensorBoard runs and can be opened."
            return State(BoardPhase.RUNNING, BoardReason.RUNNING, text)
        return _starting(pod)
    if container.state == "Waiting" and container.reason in _STILL_STARTING:
        return _starting(pod)
    if container.exit_code is None and container.last_exit_code is None:
        text = f"TensorBoard cannot be started: {container.reason} {container.message}".rstrip()
        return State(BoardPhase.FAILED, BoardReason.CRASHED, text, is_warning=True)
    return _crashed(board, pod, container)


def _starting(pod: Pod) -> State:
    return State(BoardPhase.PENDING, BoardReason.STARTING, f"Pod[{pod.name}] is starting.")


def _crashed(board: Board, pod: Pod, container: Container | None) -> State:
    code = container.exit_code if container else None
    message = container.message if container else ""
    if container is not None and code is None:
        code, message = container.last_exit_code, container.last_message
    said = texts.last_lines(message)
    if _is_missing(code, container, message):
        text = (
            f"there is no program `{PROGRAM}` in the image {board.image} ({said or 'exit 127'}): "
            f"install it there (pip install tensorboard), or name another in spec.image."
        )
        return State(BoardPhase.FAILED, BoardReason.PROGRAM_MISSING, text, is_warning=True)
    if code is None:
        text = f"Pod[{pod.name}] has failed: {pod.reason or 'Error'} {pod.message}".rstrip()
    else:
        text = f"TensorBoard ended with exit code {code}; it is started again."
        text += f"\n{said}" if said else ""
    return State(BoardPhase.FAILED, BoardReason.CRASHED, text, is_warning=True)


def _is_missing(code: int | None, container: Container | None, message: str) -> bool:
    if code == _NOT_FOUND:
        return True
    reason = container.reason if container else ""
    return reason in _CANNOT_START and any(text in message for text in _ABSENT)


def of_logs(board: Board, pod: Pod | None) -> State:
    """The condition LogsServed: which of the logs that the spec names cannot be seen, and why."""
    phase = BoardPhase.RUNNING  # of no account here
    lacking = list(board.unserved)
    fetchers = [pod.container(name) if pod else None for name in board.fetchers]
    waiting = [fetcher for fetcher in fetchers if fetcher is None or not fetcher.ready]
    failures = [text for fetcher in waiting if (text := _failure(fetcher))]
    if lacking or failures:
        reason = BoardReason.FETCH_FAILED if failures else BoardReason.NOT_SERVED
        text = "not shown: " + "; ".join([*lacking, *failures])
        return State(phase, reason, text, is_warning=True)
    if waiting and not board.suspended:
        return State(phase, BoardReason.FETCHING, "Some logs are being fetched.")
    return State(phase, BoardReason.ALL_SERVED, "All logs that the spec names are shown.")


def _failure(fetcher: Container | None) -> str:
    """What a container that fetches ended with; "" while it has not failed."""
    if fetcher is None:
        return ""
    if fetcher.failed:
        return texts.last_lines(fetcher.message) or f"{fetcher.name}: exit code {fetcher.exit_code}"
    if fetcher.last_exit_code:
        return (
            texts.last_lines(fetcher.last_message)
            or f"{fetcher.name}: exit {fetcher.last_exit_code}"
        )
    if fetcher.state == "Waiting" and fetcher.reason not in _STILL_STARTING:
        return f"{fetcher.reason} {fetcher.message}".rstrip()
    return ""
