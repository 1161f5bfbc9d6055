"""`trainyard logs`: what the replicas of a job write, together or one by one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil
from pathlib import Path

import click

from trainyard.cli import completion
from trainyard.cli.loglines import Lines, Options, Printer
from trainyard.cli.target import on_target
from trainyard.client.jobs import (
    JOB_HELP,
    Found,
    Object,
    find,
    follow,
    in_order,
    pods_of,
    replica_of,
    snapshots,
)
from trainyard.client.replicas import (
    choose_pod,
    container_statuses,
    failed_init_container,
    training_container,
)
from trainyard.client.target import CommandError, Target, Where
from trainyard.kinds.shared import labels
from trainyard.kube.errors import Invalid, KubeError, NotFound, StreamError
from trainyard.kube.resources import PODS
from trainyard.schema import duration
from trainyard.schema.errors import InvalidDuration

_DRAIN_SECONDS = 5.0


@click.command(
    help="Print what the replicas of a job write.\n\n"
    "Lines of several replicas begin with the replica's name. With -f, replicas that are "
    f"created later join in, and the command ends with the job.\n\n{JOB_HELP}"
)
@on_target
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "-r", "--replica", default="", metavar="NAME", help="Only this one, such as worker-0."
)
@click.option("-c", "--container", default="", metavar="NAME", help="Not the training container.")
@click.option(
    "--tail", type=click.IntRange(min=0), metavar="N", help="Begin with the last N lines."
)
@click.option(
    "--since",
    callback=lambda _context, _parameter, text: seconds_of(text),
    metavar="DURATION",
    help="Only lines newer than so long ago: 30s, 5m, 2h.",
)
@click.option(
    "-p",
    "--previous",
    is_flag=True,
    help="Of the attempt before. On the embedded cluster logs outlive their pods; elsewhere "
    "only restarts inside a pod have an earlier log.",
)
@click.option("--timestamps", is_flag=True, help="Put the time before each line.")
@click.argument("job", shell_complete=completion.jobs)
def command(
    where: Where,
    job: str,
    follow: bool,
    replica: str,
    container: str,
    tail: int | None,
    since: int | None,
    previous: bool,
    timestamps: bool,
) -> None:
    """Print what the replicas of a job write."""
    options = Options(replica, container, follow, previous, tail, timestamps, since)
    where.run(partial(_logs, name=job, options=options))


def seconds_of(text: str | None) -> int | None:
    """A duration such as `5m` in whole seconds, at least one; BadParameter if it is none."""
    if text is None:
        return None
    try:
        return max(1, ceil(duration.parse(text).total_seconds()))
    except InvalidDuration as error:
        raise click.BadParameter(str(error)) from error


async def _logs(target: Target, *, name: str, options: Options) -> None:
    job = await find(target, name)
    if options.previous and target.folder is not None:
        await _print_kept(target.folder, job, options)
        return
    pods = await pods_of(target.client, job)
    if options.replica and pods:
        pods = [choose_pod(job, pods, options.replica)]
    check_container(job, pods, options.container)
    if options.follow and not job.is_over:
        await _Following(target, job, options, printer(job, pods, options)).run()
    else:
        await _print_all(target, job, pods, options)


async def _print_all(target: Target, job: Found, pods: Sequence[Object], options: Options) -> None:
    pods = [pod for pod in pods if container_statuses(pod)]
    if not pods and target.folder is not None:
        await _print_kept(target.folder, job, options)
        return
    if not pods:
        raise CommandError(
            f"there are no logs of {job}: it has no pods that have started "
            f"({job.phase}); `trainyard explain {job.name}` tells why"
        )
    show = printer(job, pods, options)
    for pod in pods:
        try:
            await _stream(target, job, pod, options, show)
        except (Invalid, NotFound) as error:
            # One replica that has not started yet must not hide what the others wrote.
            if len(pods) == 1:
                raise
            click.echo(str(error), err=True)


def check_container(job: Found, pods: Sequence[Object], container: str) -> None:
    """CommandError unless some pod has the container; without pods nothing is known."""
    names = {
        entry["name"]: None
        for pod in pods
        for group in ("containers", "initContainers")
        for entry in pod["spec"].get(group) or ()
    }
    if container and names and container not in names:
        raise CommandError(f"{job} has no container {container}; it has {', '.join(names)}")


async def _print_kept(folder: Path, job: Found, options: Options) -> None:
    from trainyard.cli.oldlogs import print_kept

    await print_kept(folder, job, options)


def printer(job: Found, pods: Sequence[Object], options: Options) -> Printer:
    """Prefixes are left out where there is one replica only."""
    return Printer(is_prefixed=not options.replica and _replica_count(job, pods) > 1)


def _replica_count(job: Found, pods: Sequence[Object]) -> int:
    told = sum(len(task.get("replicas") or ()) for task in job.status.get("tasks") or ())
    return max(told, len(pods))


async def _stream(target: Target, job: Found, pod: Object, options: Options, show: Printer) -> None:
    """One container's log, to its end."""
    metadata = pod["metadata"]
    lines = Lines(show, replica_of(metadata["name"], job))
    container = options.container or failed_init_container(pod)
    if container != options.container:
        click.echo(
            f"{metadata['name']}: init container {container} failed; this is its log", err=True
        )
    chunks = target.client.logs(
        metadata["name"],
        metadata["namespace"],
        container=container or training_container(pod),
        follow=options.follow,
        previous=options.previous,
        tail_lines=options.tail,
        since_seconds=options.since_seconds,
        timestamps=options.timestamps,
    )
    async with contextlib.aclosing(chunks) as stream:
        async for chunk in stream:
            lines.feed(chunk)
    lines.end()


class _Following:
    """Follows every pod of a job, also those to come, until the job has ended."""

    def __init__(self, target: Target, job: Found, options: Options, show: Printer) -> None:
        self._target = target
        self._job = job
        self._options = options
        self._show = show
        self._streams: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until the job is over, and what its replicas wrote is printed."""
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(group))
            try:
                await self._until_over()
                # Pods that ended with the job may be known to the job before they are to us.
                for pod in await pods_of(self._target.client, self._job):
                    self._begin(group, pod)
            finally:
                watching.cancel()
            if self._streams:
                # A replica that goes on after the job has ended is not waited for.
                _, late = await asyncio.wait(self._streams.values(), timeout=_DRAIN_SECONDS)
                for stream in late:
                    stream.cancel()

    async def _until_over(self) -> None:
        states = follow(self._target.client, self._job)
        async with contextlib.aclosing(states):
            async for job in states:
                if job is None or job.is_over:
                    return

    async def _watch(self, group: asyncio.TaskGroup) -> None:
        selector = labels.selector(self._job.uid)
        pods = snapshots(self._target.client, PODS, self._job.namespace, selector=selector)
        async with contextlib.aclosing(pods):
            async for present in pods:
                for pod in in_order(present.values()):
                    self._begin(group, pod)

    def _begin(self, group: asyncio.TaskGroup, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._streams or not self._is_wanted(pod):
            return
        if has_started(pod, self._options.container or training_container(pod)):
            self._streams[uid] = group.create_task(self._one(pod))

    def _is_wanted(self, pod: Object) -> bool:
        wanted = self._options.replica
        name = pod["metadata"]["name"]
        return not wanted or wanted in (name, replica_of(name, self._job))

    async def _one(self, pod: Object) -> None:
        try:
            await _stream(self._target, self._job, pod, self._options, self._show)
        except (NotFound, StreamError):
            return  # the pod was deleted
        except KubeError as error:
            click.echo(str(error), err=True)


def has_started(pod: Mapping[str, object], container: str) -> bool:
    """Whether a container has written, or may have, anything."""
    for status in container_statuses(pod):
        if status["name"] == container:
            state = status.get("state") or {}
            return "running" in state or "terminated" in state
    return False
