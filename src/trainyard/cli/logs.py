"""`trainyard logs`: what the replicas of a job write, together or one by one."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import click

from trainyard.cli.target import container_option, on_job
from trainyard.client.job import Job
from trainyard.client.jobs import pods_of
from trainyard.client.keptlogs import find_kept, read_kept, reader
from trainyard.client.logs import LogFollower, LogRequest, follow_logs, read, shown_container
from trainyard.client.pods import PodView
from trainyard.client.replicas import check_container, choose_pod
from trainyard.client.target import CommandError, Target
from trainyard.kube.errors import Invalid, NotFound
from trainyard.schema import duration
from trainyard.schema.errors import InvalidDuration

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green")


@on_job
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "-r", "--replica", default="", metavar="NAME", help="Only this one, such as worker-0."
)
@container_option
@click.option(
    "--tail", type=click.IntRange(min=0), metavar="N", help="Begin with the last N lines."
)
@click.option(
    "--since",
    "since_seconds",
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
async def command(target: Target, job: Job, **wanted: Any) -> None:
    """Print what the replicas of a job write.

    Lines of several replicas begin with the replica's name. With -f, replicas that are created
    later join in, and the command ends with the job.
    """
    request = LogRequest(**wanted)
    if request.previous and target.folder is not None:
        await _print_kept(target.folder, job, request)
        return
    pods = await pods_of(target.client, job)
    if request.replica and pods:
        pods = [choose_pod(job, pods, request.replica)]
    check_container(job, pods, request.container)
    if request.follow and not job.is_over:
        show = Printer(is_prefixed=_are_several(job, pods, request))
        logs = LogFollower(
            target.client,
            request,
            lambda pod, _, lines: show.write(job.replica_of(pod.name), lines),
            lambda error: click.echo(str(error), err=True),
            None if target.folder is None else reader(target.folder),
        )
        await follow_logs(target.client, job, request, logs)
    else:
        await _print_all(target, job, pods, request)


def seconds_of(text: str | None) -> int | None:
    """A duration such as `5m` in whole seconds, at least one; BadParameter if it is none."""
    if text is None:
        return None
    try:
        return max(1, ceil(duration.parse(text).total_seconds()))
    except InvalidDuration as error:
        raise click.BadParameter(str(error)) from error


async def _print_all(
    target: Target, job: Job, pods: Sequence[PodView], request: LogRequest
) -> None:
    pods = [pod for pod in pods if pod.containers]
    if not pods and target.folder is not None:
        await _print_kept(target.folder, job, request)
        return
    if not pods:
        raise CommandError(
            f"there are no logs of {job}: it has no pods that have started "
            f"({job.phase}); `trainyard explain {job.name}` tells why"
        )
    show = Printer(is_prefixed=_are_several(job, pods, request))
    for pod in pods:
        container = shown_container(job, pod, request)
        if not request.container and container == pod.failed_init_container:
            click.echo(f"{pod.name}: init container {container} failed; this is its log", err=True)
        try:
            async with contextlib.aclosing(read(target.client, pod, container, request)) as log:
                async for lines in log:
                    show.write(job.replica_of(pod.name), lines)
        except (Invalid, NotFound) as error:
            # One replica that has not started yet must not hide what the others wrote.
            if len(pods) == 1:
                raise
            click.echo(str(error), err=True)


def _are_several(job: Job, pods: Sequence[PodView], request: LogRequest) -> bool:
    return not request.replica and max(len(job.replicas), len(pods)) > 1


async def _print_kept(folder: Path, job: Job, request: LogRequest) -> None:
    found = find_kept(folder, job, request)
    show = Printer(is_prefixed=not request.replica and len(found) > 1)
    for replica, path in found.items():
        async for lines in read_kept(path, request):
            show.write(replica, lines)


@dataclass(slots=True)
class Printer:
    """Writes whole lines, each with its replica where there are several."""

    is_prefixed: bool
    _known: dict[str, str] = field(default_factory=dict)

    def write(self, source: str, lines: bytes) -> None:
        """Whole lines of one replica."""
        if self.is_prefixed:
            prefix = self._prefix(source)
            lines = b"".join(prefix + line for line in lines.splitlines(keepends=True))
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()

    def _prefix(self, source: str) -> bytes:
        if source not in self._known:
            text = f"[{source}]"
            if sys.stdout.isatty():
                text = click.style(text, fg=_COLOURS[len(self._known) % len(_COLOURS)])
            self._known[source] = f"{text} "
        return self._known[source].encode()
