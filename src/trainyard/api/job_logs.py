"""Logs of a job's replicas, wherever they are: of pods, or kept of those that are gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, NoReturn

from trainyard.client.attempt_logs import attempt_before
from trainyard.client.cluster_target import ClusterTarget, CommandError
from trainyard.client.job_lookup import pods_of
from trainyard.client.job_view import Job
from trainyard.client.kept_logs import find_kept, kept_logs, read_kept, reader
from trainyard.client.log_streams import (
    LogFollower,
    follow_logs,
    lines_of_rank,
    read,
    shown_container,
)
from trainyard.client.log_streams import LogRequest as LogRequest
from trainyard.client.log_streams import Unfinished as Unfinished
from trainyard.client.log_streams import texts as texts
from trainyard.client.pod_views import PodView
from trainyard.client.replica_commands import check_container, check_replica
from trainyard.kube.errors import Invalid, KubeError, NotFound

_GONE = ("Succeeded", "Failed", "Deleted")
"""Phases of replicas that may have no pod any more."""
Note = Callable[[str], None]
"""Is told what is worth knowing beside the lines."""
Grow = Callable[[Unfinished], None]
"""Is told of a line that a replica is writing."""


class LogLines(NamedTuple):
    """Whole lines that one replica has written."""

    replica: str
    data: bytes
    is_one_of_several: bool
    """There are, or may be, lines of other replicas."""


async def read_logs(
    target: ClusterTarget, job: Job, request: LogRequest, note: Note, grow: Grow | None = None
) -> AsyncGenerator[LogLines]:
    """What the replicas, or one rank, have written; with `follow`, until the job has ended, all
    together.

    The first block of a log that is followed is empty; after it `grow` is called.

    Raises CommandError where there is no log, or no such replica or container.
    """
    rank = request.rank
    if rank is not None:
        alone = _replica_of_rank(job, await pods_of(target.client, job), request, rank)
        if alone:
            request, rank = replace(request, replica=alone), None
        else:
            grow = None
    is_found = rank is None
    async with contextlib.aclosing(_read(target, job, request, note, grow)) as blocks:
        async for each in blocks:
            if rank is None or not each.data:
                yield each
            elif lines := lines_of_rank(each.data, rank):
                is_found = True
                yield each._replace(data=lines)
    if not is_found:
        note(
            f"no line names rank {rank}: lines do where several ranks share a log; where each has "
            "a replica of its own, ask for that: --replica NAME"
        )


def _replica_of_rank(job: Job, pods: Sequence[PodView], request: LogRequest, rank: int) -> str:
    """The replica that is the rank, by its variable RANK; empty if none is."""
    for pod in pods:
        if pod.variable(shown_container(job, pod, request), "RANK") == str(rank):
            return job.replica_of(pod.name)
    return ""


async def _read(
    target: ClusterTarget, job: Job, request: LogRequest, note: Note, grow: Grow | None
) -> AsyncGenerator[LogLines]:
    if request.previous and job.run_policy.get("restartMode") == "InPlace":
        is_found = False
        async for each in _before_in_place(target, job, request):
            is_found = True
            yield each
        if is_found:
            return
    if request.previous and target.folder is not None:
        found = find_kept(target.folder, job, request)
        several = not request.replica and len(found) > 1
        async for each in _kept(job, found, request, note, several=several):
            yield each
        return
    pods = await pods_of(target.client, job)
    check_replica(job, pods, request.replica)
    if request.replica:
        pods = [p for p in pods if request.replica in (p.name, job.replica_of(p.name))]
    check_container(job, pods, request.container)
    several = not request.replica and max(len(job.replicas), len(pods)) > 1
    if request.follow and not job.is_over:
        blocks = _live(target, job, request, note, grow, several=several)
    else:
        blocks = _present(target, job, pods, request, note, several=several)
    async with contextlib.aclosing(blocks):
        async for each in blocks:
            yield each


async def _before_in_place(
    target: ClusterTarget, job: Job, request: LogRequest
) -> AsyncGenerator[LogLines]:
    """The attempt before of replicas that have started again in their pods."""
    pods = await pods_of(target.client, job)
    check_replica(job, pods, request.replica)
    several = not request.replica and len(pods) > 1
    whole = replace(request, previous=False, follow=False, tail=None)
    for pod in pods:
        replica, container = job.replica_of(pod.name), shown_container(job, pod, request)
        if request.replica in ("", pod.name, replica) and pod.has_started(container):
            async with contextlib.aclosing(read(target.client, pod, container, whole)) as log:
                async for line in attempt_before(log, request.tail):
                    yield LogLines(replica, line, several)


async def _live(
    target: ClusterTarget,
    job: Job,
    request: LogRequest,
    note: Note,
    grow: Grow | None,
    *,
    several: bool,
) -> AsyncGenerator[LogLines]:
    arrived: asyncio.Queue[LogLines | None] = asyncio.Queue()
    arrived.put_nowait(LogLines("", b"", several))

    def deliver(pod: PodView, _: str, lines: bytes) -> None:
        arrived.put_nowait(LogLines(job.replica_of(pod.name), lines, several))

    def fail(error: KubeError) -> None:
        note(str(error))

    def growing(_: PodView, __: str, line: Unfinished) -> None:
        if grow is not None and arrived.empty():  # what came before it is told
            grow(line)

    kept = None if target.folder is None else reader(target.folder)
    logs = LogFollower(target.client, request, deliver, fail, kept, growing)
    following = asyncio.create_task(follow_logs(target.client, job, request, logs))
    following.add_done_callback(lambda _: arrived.put_nowait(None))
    try:
        while (block := await arrived.get()) is not None:
            yield block
        following.result()
    finally:
        following.cancel()
        await asyncio.wait({following})


async def _present(
    target: ClusterTarget,
    job: Job,
    pods: Sequence[PodView],
    request: LogRequest,
    note: Note,
    *,
    several: bool,
) -> AsyncGenerator[LogLines]:
    pods = [pod for pod in pods if pod.containers]
    kept = _kept_beside(target.folder, job, pods, request)
    if not pods and not kept:
        _fail_without_logs(job, request, target.options(job.namespace))
    for pod in pods:
        replica, container = job.replica_of(pod.name), shown_container(job, pod, request)
        if not request.container and container == pod.failed_init_container:
            note(_of_init_container(replica, container))
        try:
            async with contextlib.aclosing(read(target.client, pod, container, request)) as log:
                async for lines in log:
                    yield LogLines(replica, lines, several)
        except (Invalid, NotFound) as error:
            # One replica that has not started yet must not hide what the others wrote.
            if len(pods) + len(kept) == 1:
                raise
            note(str(error))
    async for each in _kept(job, kept, request, note, several=several):
        yield each
    present = {*kept, *(job.replica_of(pod.name) for pod in pods)}
    for status in () if request.replica else job.replicas:
        replica = job.replica_of(status["name"])
        if replica not in present and status.get("phase") in _GONE:
            note(f"there is no log of {replica}: it {job.fate_of(replica)}")


def _kept_beside(
    folder: Path | None, job: Job, pods: Sequence[PodView], request: LogRequest
) -> dict[str, Path]:
    """The kept logs of replicas whose pods are gone; of all that ever were, if all pods are."""
    if folder is None:
        return {}
    present = {job.replica_of(pod.name) for pod in pods}
    wanted = job.replica_of(request.replica)
    return {
        replica: path
        for replica, path in kept_logs(folder, job, request.container)
        if replica not in present
        and (not wanted or replica == wanted)
        and (not pods or job.replica_status(replica).get("phase") in _GONE)
    }


def _fail_without_logs(job: Job, request: LogRequest, options: str) -> NoReturn:
    if job.replica_status(replica := job.replica_of(request.replica)):
        whose, why = f"replica {replica} of {job}", f"it {job.fate_of(replica)}"
    else:
        whose, why = str(job), f"it has no pods that have started ({job.phase})"
    about = f"{job.name} {options}".rstrip()
    raise CommandError(
        f"there are no logs of {whose}: {why}; `trainyard explain {about}` tells more"
    )


def _of_init_container(replica: str, container: str) -> str:
    return f"{replica}: init container {container} failed; this is its log"


async def _kept(
    job: Job, found: Mapping[str, Path], request: LogRequest, note: Note, *, several: bool
) -> AsyncGenerator[LogLines]:
    for replica, path in found.items():
        container = path.parent.name
        if not request.container and container == job.failed_init_container(replica):
            note(_of_init_container(replica, container))
        async with contextlib.aclosing(read_kept(path, request)) as log:
            async for lines in log:
                yield LogLines(replica, lines, several)
