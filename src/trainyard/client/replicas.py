"""Choosing a replica of a job and a container in it, and running a command there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.client.job import Job
from trainyard.client.pods import PodView, in_order
from trainyard.client.target import CommandError, Target
from trainyard.client.watching import follow, watch
from trainyard.kinds.shared import labels
from trainyard.kube.client import Selection
from trainyard.kube.resources import PODS


@dataclass(frozen=True, slots=True)
class Choice:
    """A replica (none: rank 0) and a container in it (none: the one that trains)."""

    replica: str = ""
    container: str = ""


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
    if not pods:
        raise CommandError(
            f"{job} has no pods ({job.phase}); `trainyard explain {job.name}` tells why"
        )
    if not replica:
        return next((pod for pod in in_order(pods) if pod.is_master), _first(job, pods))
    for pod in pods:
        if replica in (pod.name, job.replica_of(pod.name)):
            return pod
    known = ", ".join(job.replica_of(pod.name) for pod in pods[:8])
    more = ", …" if len(pods) > 8 else ""
    raise CommandError(f"{job} has no replica {replica}; there are {known}{more}")


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


async def running_replica(target: Target, job: Job, choice: Choice, seconds: float) -> PodView:
    """The chosen pod once its container runs; CommandError if that takes too long, or cannot be."""
    try:
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            ended = group.create_task(_fail_when_hopeless(target, job, choice.replica))
            pod = await _wait_for_pod(target, job, choice)
            ended.cancel()
        return pod
    except TimeoutError:
        raise CommandError(
            f"no replica of {job} runs after {seconds:g} s; "
            f"`trainyard explain {job.name}` tells why"
        ) from None


async def _wait_for_pod(target: Target, job: Job, choice: Choice) -> PodView:
    selection = Selection(labels=labels.selector(job.uid))
    async with contextlib.aclosing(watch(target.client, PODS, job.namespace, selection)) as states:
        async for state in states:
            pods = [PodView(pod) for pod in state.present.values()]
            names = {name for pod in pods for name in (pod.name, job.replica_of(pod.name))}
            if not pods or (choice.replica and choice.replica not in names):
                continue
            pod = choose_pod(job, pods, choice.replica)
            if pod.has_started(choice.container or job.training_container(pod)):
                return pod
    raise CommandError(f"{job} cannot be watched")


async def _fail_when_hopeless(target: Target, job: Job, replica: str) -> None:
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
