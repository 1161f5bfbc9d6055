"""Choosing a replica of a job and a container in it, and running a command there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from trainyard.client.cluster_target import ClusterTarget, CommandError
from trainyard.client.job_view import Job
from trainyard.client.object_watcher import follow, watch_pods
from trainyard.client.pod_views import PodView, in_order
from trainyard.kinds.shared import labels
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Execution:
    """A command in a container, with what is connected to it."""

    pod: PodView
    container: str
    words: Sequence[str]
    stdin: bool = True
    tty: bool = False


def choose_pod(job: Job, pods: Sequence[PodView], replica: str = "") -> PodView:
    """The pod of `replica` (`worker-0`, or the pod's name); without one, that of rank 0."""
    if not pods and not job.replica_status(job.replica_of(replica)):
        raise CommandError(
            f"{job} has no pods ({job.phase}); `trainyard explain {job.name}` tells why"
        )
    if not replica:
        masters = [p for p in in_order(pods) if p.labels.get(labels.JOB_ROLE) == labels.MASTER_ROLE]
        return masters[0] if masters else _first(job, pods)
    for pod in pods:
        if replica in (pod.name, job.replica_of(pod.name)):
            return pod
    check_replica(job, pods, replica)
    raise CommandError(
        f"replica {replica} of {job} {job.fate_of(job.replica_of(replica))}; "
        f"`trainyard explain {job.name}` tells why"
    )


def check_replica(job: Job, pods: Sequence[PodView], replica: str) -> None:
    """CommandError unless the job has, or had, such a replica (`worker-0`, or a pod's name)."""
    names = (*(each.get("name") or "" for each in job.replicas), *(pod.name for pod in pods))
    known = list(dict.fromkeys(job.replica_of(name) for name in names))
    if replica and known and job.replica_of(replica) not in known:
        more = ", …" if len(known) > 8 else ""
        raise CommandError(
            f"{job} has no replica {replica}; there are {', '.join(known[:8])}{more}"
        )


def _first(job: Job, pods: Sequence[PodView]) -> PodView:
    """The first replica in the order of the job's status."""
    by_name = {pod.name: pod for pod in pods}
    for replica in job.replicas:
        if replica.get("name") in by_name:
            return by_name[replica["name"]]
    return in_order(pods)[0]


def check_container(job: Job, pods: Sequence[PodView], container: str) -> None:
    """CommandError unless some pod has the container; without pods nothing is known."""
    names = dict.fromkeys(
        name for pod in pods for name in (*pod.container_names, *pod.init_container_names)
    )
    if container and names and container not in names:
        raise CommandError(f"{job} has no container {container}; it has {', '.join(names)}")


def check_running(job: Job, pod: PodView, container: str) -> None:
    """Only a running container can be entered; CommandError otherwise."""
    replica = job.replica_of(pod.name)
    if container not in pod.container_names:
        raise CommandError(
            f"replica {replica} of {job} has no container {container}; "
            f"it has {', '.join(pod.container_names)}"
        )
    found = pod.container(container)
    if found is None or not found.is_running:
        raise CommandError(
            f"replica {replica} of {job} is not running ({pod.phase}); "
            f"`trainyard explain {job.name}` tells why"
        )


async def running_replica(
    target: ClusterTarget, job: Job, replica: str, container: str, seconds: float
) -> PodView:
    """The chosen pod once its container runs; CommandError if that takes too long, or cannot be."""
    try:
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            ended = group.create_task(_fail_when_hopeless(target, job, replica))
            pod = await _wait_for_pod(target, job, replica, container)
            ended.cancel()
        return pod
    except TimeoutError:
        raise CommandError(
            f"no replica of {job} runs after {seconds:g} s; "
            f"`trainyard explain {job.name}` tells why"
        ) from None


async def _wait_for_pod(target: ClusterTarget, job: Job, replica: str, container: str) -> PodView:
    async with contextlib.aclosing(watch_pods(target.client, job)) as states:
        async for state in states:
            pods = [PodView(pod) for pod in state.present.values()]
            names = {name for pod in pods for name in (pod.name, job.replica_of(pod.name))}
            if not pods or (replica and replica not in names):
                continue
            pod = choose_pod(job, pods, replica)
            if pod.has_started(container or job.training_container(pod)):
                return pod
    raise CommandError(f"{job} cannot be watched")


async def _fail_when_hopeless(target: ClusterTarget, job: Job, replica: str) -> None:
    async with contextlib.aclosing(follow(target.client, job)) as states:
        async for state in states:
            if state is None:
                raise CommandError(f"{job} was deleted")
            if state.is_over:
                raise CommandError(
                    f"{job} ended before it could be entered ({state.phase}); "
                    f"`trainyard explain {job.name}` tells why"
                )
            known = [name for each in state.replicas if (name := job.replica_of(each["name"]))]
            if replica and known and replica not in {*known, *(f"{job.base}-{n}" for n in known)}:
                raise CommandError(f"{job} has no replica {replica}; there are {', '.join(known)}")
