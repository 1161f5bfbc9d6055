"""`trainyard logs`: what the replicas of a job write, together or one by one."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, NoReturn

import click

from trainyard.cli.target import container_option, on_job
from trainyard.client.job import Job
from trainyard.client.jobs import pods_of
from trainyard.client.keptlogs import find_kept, kept_logs, read_kept, reader
from trainyard.client.logs import (
    LogFollower,
    LogRequest,
    Unfinished,
    follow_logs,
    read,
    shown_container,
    texts,
)
from trainyard.client.pods import PodView
from trainyard.client.replicas import check_container, check_replica
from trainyard.client.target import CommandError, Target
from trainyard.kube.errors import Invalid, NotFound
from trainyard.schema import duration
from trainyard.schema.errors import InvalidDuration

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green")

_KNOWN_BYTES = 64

_GONE = ("Succeeded", "Failed", "Deleted")
"""Phases of replicas that may have no pod any more."""


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
        found = find_kept(target.folder, job, request)
        show = Printer(is_prefixed=not request.replica and len(found) > 1)
        await _print_kept(job, found, request, show)
        return
    pods = await pods_of(target.client, job)
    check_replica(job, pods, request.replica)
    if request.replica:
        pods = [p for p in pods if request.replica in (p.name, job.replica_of(p.name))]
    check_container(job, pods, request.container)
    if request.follow and not job.is_over:
        show = Printer(is_prefixed=_are_several(job, pods, request))
        logs = LogFollower(
            target.client,
            request,
            lambda pod, _, lines: show.write(job.replica_of(pod.name), lines),
            lambda error: click.echo(str(error), err=True),
            None if target.folder is None else reader(target.folder),
            lambda _, __, line: show.grow(line),
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
    kept = _kept_beside(target.folder, job, pods, request)
    if not pods and not kept:
        _fail_without_logs(job, request)
    show = Printer(is_prefixed=_are_several(job, pods, request))
    for pod in pods:
        container = shown_container(job, pod, request)
        if not request.container and container == pod.failed_init_container:
            _tell_of_init_container(job.replica_of(pod.name), container)
        try:
            async with contextlib.aclosing(read(target.client, pod, container, request)) as log:
                async for lines in log:
                    show.write(job.replica_of(pod.name), lines)
        except (Invalid, NotFound) as error:
            # One replica that has not started yet must not hide what the others wrote.
            if len(pods) + len(kept) == 1:
                raise
            click.echo(str(error), err=True)
    await _print_kept(job, kept, request, show)
    present = {*kept, *(job.replica_of(pod.name) for pod in pods)}
    for told in () if request.replica else job.replicas:
        replica = job.replica_of(told["name"])
        if replica not in present and told.get("phase") in _GONE:
            click.echo(f"there is no log of {replica}: it {job.fate_of(replica)}", err=True)


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
        and (not pods or job.told_of(replica).get("phase") in _GONE)
    }


def _fail_without_logs(job: Job, request: LogRequest) -> NoReturn:
    if job.told_of(replica := job.replica_of(request.replica)):
        whose, why = f"replica {replica} of {job}", f"it {job.fate_of(replica)}"
    else:
        whose, why = str(job), f"it has no pods that have started ({job.phase})"
    raise CommandError(
        f"there are no logs of {whose}: {why}; `trainyard explain {job.name}` tells more"
    )


def _tell_of_init_container(replica: str, container: str) -> None:
    click.echo(f"{replica}: init container {container} failed; this is its log", err=True)


def _are_several(job: Job, pods: Sequence[PodView], request: LogRequest) -> bool:
    return not request.replica and max(len(job.replicas), len(pods)) > 1


async def _print_kept(
    job: Job, found: Mapping[str, Path], request: LogRequest, show: Printer
) -> None:
    for replica, path in found.items():
        container = path.parent.name
        if not request.container and container == job.failed_init_container(replica):
            _tell_of_init_container(replica, container)
        async for lines in read_kept(path, request):
            show.write(replica, lines)


@dataclass(slots=True)
class Printer:
    """Writes whole lines, each with its replica where there are several.

    On a terminal a line of the only replica is written while it grows, with its carriage returns,
    and of several replicas each line as it looks in the end.
    """

    is_prefixed: bool
    is_terminal: bool = field(default_factory=sys.stdout.isatty)
    _known: dict[str, str] = field(default_factory=dict)
    _written: int = 0
    """How much of the line that is not whole yet."""
    _last: bytes = b""
    """The end of that, by which it is known again when a stream was taken up anew."""

    def write(self, source: str, lines: bytes) -> None:
        """Whole lines of one replica."""
        if self.is_prefixed:
            prefix = self._prefix(source)
            each = _shown(lines) if self.is_terminal else lines.split(b"\n")[:-1]
            lines = b"".join(prefix + line + b"\n" for line in each)
        elif self._written:
            begun = lines[max(0, self._written - len(self._last)) : self._written]
            is_other = begun != self._last or b"\n" in lines[: self._written]
            lines = b"\n" + lines if is_other else lines[self._written :]
            self._written, self._last = 0, b""
        self._print(lines)

    def grow(self, line: Unfinished) -> None:
        """The line that the only replica is writing has grown."""
        if self.is_prefixed or not self.is_terminal:
            return
        known = max(0, self._written - len(self._last))
        text = line(known)
        if not text.startswith(self._last):
            return  # the log is read anew, and not yet at what is written
        if new := text[len(self._last) :]:
            self._written += len(new)
            self._last = text[-_KNOWN_BYTES:]
            self._print(new)

    def _print(self, text: bytes) -> None:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()

    def _prefix(self, source: str) -> bytes:
        if source not in self._known:
            text = f"[{source}]"
            if self.is_terminal:
                text = click.style(text, fg=_COLOURS[len(self._known) % len(_COLOURS)])
            self._known[source] = f"{text} "
        return self._known[source].encode()


def _shown(lines: bytes) -> list[bytes]:
    return [text.encode() for text in texts(lines)]
