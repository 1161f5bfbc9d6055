"""The last words of `run`: how each job ended, how long it took, and why it failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainyard.client.job import Job
from trainyard.client.pods import PodView

_LAST_LINES = 15


def lines(job: Job, logs: Path | None, *, seconds: float) -> Iterator[str]:
    """The summary of one job; `logs` is the folder of the pods' logs, where they are on disk."""
    restarts = f"{job.restarts} restart{'' if job.restarts == 1 else 's'}"
    phase = "deleted" if job.is_deleted else job.phase
    yield f"{job.kind.kind} {job.name}: {phase} after {seconds:.1f} s, {restarts}"
    if job.phase == "Failed":
        if job.failure:
            yield f"  {job.failure}"
        for pod in failed_pods(job):
            yield from _failure(pod)
    if logs is not None:
        yield f"  logs: {logs}"


def viewer(job: Job, *, keeps: bool) -> str:
    """Of a job with a TensorBoard; `keeps`: the job, and it, stay after the command."""
    if not keeps:
        return "  TensorBoard ends with this command; with --keep it stays"
    if job.viewer.get("ready"):
        return f"  TensorBoard: {job.viewer_url}"
    return f"  TensorBoard is not ready yet: trainyard show {job.name}"


def failed_pods(job: Job) -> list[PodView]:
    """The pods that ended with an error, in order."""
    return [pod for pod in job.ordered_pods() if pod.phase == "Failed"]


def _failure(pod: PodView) -> Iterator[str]:
    container = pod.failed_container
    if container is None:
        yield f"  {pod.replica} failed: {pod.message or 'no container ended with an error'}"
        return
    reason = f" ({container.reason})" if container.reason not in ("", "Error") else ""
    which = f", container {container.name}," if len(pod.containers) > 1 else ""
    yield f"  {pod.replica}{which} ended with exit code {container.exit_code}{reason}"
    last = container.last_words.rstrip().splitlines()[-_LAST_LINES:]
    if last:
        yield "  its last lines:"
        yield from (f"    {line}" for line in last)
