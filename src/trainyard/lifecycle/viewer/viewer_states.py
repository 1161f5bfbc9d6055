"""Where a viewer stands, as its conditions tell it: its page, and the logs that it shows."""

from __future__ import annotations

from trainyard.kinds.shared.viewer import Viewer, ViewerPhase, ViewerReason
from trainyard.lifecycle import texts
from trainyard.lifecycle.observed import Container, Observed, Pod
from trainyard.schema.dataclass import dataclass

# https://www.gnu.org/software/bash/manual/html_node/Exit-Status.html
_NOT_FOUND = 127
"""Exit code of a shell, and of this project's nodes, for a program that is not there."""
_ABSENT = ("not found", "no such file")
_STILL_STARTING = ("", "ContainerCreating", "PodInitializing")
_CANNOT_START = ("StartError", "ContainerCannotRun", "RunContainerError")


@dataclass(frozen=True, slots=True)
class ViewerState:
    """One condition, and the phase that goes with it."""

    phase: ViewerPhase
    reason: ViewerReason
    message: str
    is_warning: bool = False


def page_state(viewer: Viewer, pod: Pod | None, observed: Observed) -> ViewerState:
    """The condition Ready: whether the page can be opened, and if not, why."""
    if viewer.suspended:
        return ViewerState(ViewerPhase.SUSPENDED, ViewerReason.SUSPENDED, "spec.suspend is true.")
    if not viewer.has_logs:
        text = f"the spec names no logs that can be shown; set {viewer.logs_field}."
        return ViewerState(ViewerPhase.FAILED, ViewerReason.NO_LOGS, text, is_warning=True)
    for conflict in observed.conflicts:
        text = f"{texts.name_taken(conflict)}."
        return ViewerState(ViewerPhase.FAILED, ViewerReason.NAME_CONFLICT, text, is_warning=True)
    for refusal in observed.refusals:
        text = texts.refused(refusal)
        return ViewerState(
            ViewerPhase.PENDING, ViewerReason.CREATION_REFUSED, text, is_warning=True
        )
    if pod is None or pod.deleting is not None:
        text = f"Pod[{viewer.pod_name}] is being created."
        return ViewerState(ViewerPhase.PENDING, ViewerReason.STARTING, text)
    return _pod_state(viewer, pod)


def _pod_state(viewer: Viewer, pod: Pod) -> ViewerState:
    container = pod.container(viewer.program)
    if pod.phase in ("Failed", "Succeeded"):
        return _crashed(viewer, pod, container)
    if pod.unschedulable and not pod.scheduled:
        text = texts.unschedulable(pod)
        return ViewerState(ViewerPhase.PENDING, ViewerReason.UNSCHEDULABLE, text)
    if container is None:
        return _starting(pod)
    if container.state == "Running":
        if container.ready:
            text = f"{viewer.kind} runs and can be opened."
            return ViewerState(ViewerPhase.RUNNING, ViewerReason.RUNNING, text)
        return _starting(pod)
    if container.state == "Waiting" and container.reason in _STILL_STARTING:
        return _starting(pod)
    if container.exit_code is None and container.last_exit_code is None:
        text = f"{viewer.kind} cannot be started: {container.reason} {container.message}".rstrip()
        return ViewerState(ViewerPhase.FAILED, ViewerReason.CRASHED, text, is_warning=True)
    return _crashed(viewer, pod, container)


def _starting(pod: Pod) -> ViewerState:
    return ViewerState(ViewerPhase.PENDING, ViewerReason.STARTING, f"Pod[{pod.name}] is starting.")


def _crashed(viewer: Viewer, pod: Pod, container: Container | None) -> ViewerState:
    code = container.exit_code if container else None
    message = container.message if container else ""
    if container is not None and code is None:
        code, message = container.last_exit_code, container.last_message
    output = texts.last_lines(message)
    if _is_missing(code, container, message):
        text = (
            f"there is no program `{viewer.program}` in the image {viewer.image} "
            f"({output or 'exit 127'}): install it there ({viewer.installation}), or name another "
            "in spec.image."
        )
        return ViewerState(ViewerPhase.FAILED, ViewerReason.PROGRAM_MISSING, text, is_warning=True)
    if code is None:
        text = f"Pod[{pod.name}] has failed: {pod.reason or 'Error'} {pod.message}".rstrip()
    else:
        text = f"{viewer.kind} ended with exit code {code}; it is started again."
        text += f"\n{output}" if output else ""
    return ViewerState(ViewerPhase.FAILED, ViewerReason.CRASHED, text, is_warning=True)


def _is_missing(code: int | None, container: Container | None, message: str) -> bool:
    if code == _NOT_FOUND:
        return True
    reason = container.reason if container else ""
    return reason in _CANNOT_START and any(text in message for text in _ABSENT)


def logs_state(viewer: Viewer, pod: Pod | None) -> ViewerState:
    """The condition LogsServed: which of the logs that the spec names cannot be seen, and why."""
    phase = ViewerPhase.RUNNING  # of no account here
    lacking = list(viewer.unserved)
    if pod is not None and pod.deleting is not None:  # what ends in it now ends with it
        pod = None
    fetchers = [pod.container(name) if pod else None for name in viewer.fetchers]
    waiting = [fetcher for fetcher in fetchers if fetcher is None or not fetcher.ready]
    failures = [text for fetcher in waiting if (text := _failure(fetcher))]
    if lacking or failures:
        reason = ViewerReason.FETCH_FAILED if failures else ViewerReason.NOT_SERVED
        text = "not shown: " + "; ".join([*lacking, *failures])
        return ViewerState(phase, reason, text, is_warning=True)
    if waiting and not viewer.suspended:
        return ViewerState(phase, ViewerReason.FETCHING, "Some logs are being fetched.")
    return ViewerState(phase, ViewerReason.ALL_SERVED, "All logs that the spec names are shown.")


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
