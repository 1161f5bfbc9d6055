"""Logs of pods that are gone: the embedded cluster keeps them in its state folder (decision 67)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trainyard.client.cluster_target import CommandError
from trainyard.client.job_view import Job
from trainyard.client.log_streams import Kept, LogRequest, whole_lines
from trainyard.client.pod_views import PodView
from trainyard.kube.errors import NotFound
from trainyard.podruntime.log_reader import LogOptions, changed_at, logs_in, read_log
from trainyard.schema.times import parse


def find_kept(folder: Path, job: Job, request: LogRequest) -> dict[str, Path]:
    """Each replica's last log, or with `previous` the one before; CommandError if there is none."""
    back = 1 if request.previous else 0
    found = dict(kept_logs(folder, job, request.container, back=back))
    if request.replica:
        short = job.replica_of(request.replica)
        found = {name: path for name, path in found.items() if name == short}
    if not found:
        whose = f"replica {request.replica} of {job}" if request.replica else str(job)
        places = (folder / "pods", *_folders_of(folder, job))
        if job.restarts and not all(os.access(path, os.R_OK) for path in places):
            raise CommandError(f"cannot read the logs of {whose}: they are another user's")
        why = "it was not restarted" if back else f"nothing of it has started ({job.phase})"
        which = "earlier log" if back else "log"
        raise CommandError(
            f"there is no {which} of {whose}: {why}; `trainyard explain {job.name}` tells more"
        )
    return found


def kept_logs(
    folder: Path, job: Job, container: str = "", *, back: int = 0
) -> Iterator[tuple[str, Path]]:
    """Replica and file of every replica's last log; `back` 1: of the last but one.

    Each pod has a folder `<namespace>_<pod>_<uid>`, and in it one per container with a log per
    run of it. A restarted replica has a pod, and so a folder, of its own each time. Of a pod that
    did not come to its training it is the log of an init container.
    """
    by_replica: dict[str, list[tuple[float, Path]]] = {}
    for pod in _folders_of(folder, job):
        replica = pod.name.removeprefix(_prefix(job)).rpartition("_")[0]
        logs = [log for each in pod.glob(container or "*") for log in _logs_in(each)]
        if logs:
            kept = [path.parent.name for path in logs]
            training = container or job.training_container_among(replica, kept)
            same = [(changed_at(p), p) for p in logs if p.parent.name == training]
            by_replica.setdefault(replica, []).extend(same)
    for replica, runs in sorted(by_replica.items()):
        if len(runs) > back:
            yield replica, sorted(runs)[-1 - back][1]


def _prefix(job: Job) -> str:
    return f"{job.namespace}_{job.base}-"


def _folders_of(folder: Path, job: Job) -> list[Path]:
    return sorted((folder / "pods").glob(f"{_prefix(job)}*"))


def _logs_in(folder: Path) -> list[Path]:
    """None where the pod is somebody else's, whose logs are closed (decision 88)."""
    try:
        return logs_in(folder)
    except PermissionError:
        return []


def log_of(folder: Path, pod: PodView, container: str) -> Path | None:
    """The file of a container's last log; None if there is none."""
    own = folder / "pods" / f"{pod.namespace}_{pod.name}_{pod.uid}" / container
    return max(_logs_in(own), key=changed_at, default=None)


def reader(folder: Path) -> Kept:
    """Reads what is kept of pods in a state folder, for a `LogFollower`."""

    async def read(pod: PodView, container: str, request: LogRequest) -> AsyncGenerator[bytes]:
        path = log_of(folder, pod, container)
        if path is None:
            raise NotFound(f"nothing is kept of container {container} of pod {pod.name}")
        async with contextlib.aclosing(read_kept(path, request)) as lines:
            async for each in lines:
                yield each

    return read


def read_kept(path: Path, request: LogRequest) -> AsyncGenerator[bytes]:
    """A kept log, whole lines at a time."""
    ago = request.since_seconds
    since = parse(request.since_time) if request.since_time else None
    if ago is not None:
        since = datetime.now(UTC) - timedelta(seconds=ago)
    wanted = LogOptions(tail=request.tail, timestamps=request.timestamps, since=since)
    return whole_lines(read_log(str(path), wanted, lambda: True))
