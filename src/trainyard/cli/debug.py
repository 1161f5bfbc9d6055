"""`trainyard debug`: everything of a job but its training, and a shell in the middle of it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from trainyard.cli.exec_ import SHELL, connect
from trainyard.cli.logs import has_started
from trainyard.cli.submit import read_jobs
from trainyard.cli.target import on_target
from trainyard.client.jobs import Found, Object, find, follow, replica_of, snapshots
from trainyard.client.replicas import choose_pod, training_container
from trainyard.client.target import CommandError, Target, Where
from trainyard.kinds.shared import labels
from trainyard.kube.errors import Conflict, NotFound
from trainyard.kube.resources import PODS

if TYPE_CHECKING:
    from trainyard.manifest.reader import Document


@dataclass(frozen=True, slots=True)
class Options:
    """Which replica to enter, and how."""

    replica: str
    container: str
    words: tuple[str, ...]
    seconds: float
    deletes: bool


@click.command()
@on_target
@click.option("-f", "--filename", "file", required=True, metavar="FILE", help="The manifest.")
@click.option("--job", default="", metavar="NAME", help="Which job, where the file has several.")
@click.option(
    "-r", "--replica", default="", metavar="NAME", help="Not rank 0 but this one: worker-1."
)
@click.option("-c", "--container", default="", metavar="NAME", help="Not the training container.")
@click.option(
    "--timeout",
    default=300.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="How long to wait for the replica to run.",
)
@click.option("--rm", is_flag=True, help="Delete the job when the shell ends.")
@click.argument("words", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
def command(
    where: Where,
    file: str,
    job: str,
    replica: str,
    container: str,
    timeout: float,
    rm: bool,
    words: tuple[str, ...],
) -> int:
    """Create a manifest's job in debug mode and open a shell, or run COMMAND, in a replica.

    The replicas get their environment, hostfile, keys and peers as always, but wait instead of
    training. Without a terminal and a command, only the job is created.
    """
    options = Options(replica, container, words, timeout, rm)
    result = read_jobs(file, where.namespace)
    chosen = choose_job(result.documents, job)
    beside = [document for document in result.documents if not document.is_job]
    return where.run(partial(_debug, documents=[*beside, chosen], options=options))


async def _debug(target: Target, *, documents: Sequence[Document], options: Options) -> int:
    from trainyard.client.submission import submit, with_debug

    documents = [with_debug(document) if document.is_job else document for document in documents]
    (created,) = await submit(
        target.client,
        documents,
        namespace=target.namespace,
        create_namespaces=bool(target.socket),
    )
    here = Target(target.client, created.namespace, target.title, target.socket, target.folder)
    job = await find(here, f"{created.kind}/{created.name}")
    click.echo(f"{job} created in debug mode; waiting for its replicas", err=True)
    try:
        return await _enter(target, job, options)
    finally:
        if options.deletes:
            with contextlib.suppress(NotFound, Conflict):  # somebody else was faster
                await target.client.delete(job.resource, job.name, job.namespace, uid=job.uid)
            click.echo(f"{job} deleted", err=True)
        else:
            click.echo(
                f"{job} stays in debug mode: `trainyard exec {job.name}` enters it, "
                f"`trainyard delete {job.name}` ends it",
                err=True,
            )


def choose_job(documents: Sequence[Document], name: str) -> Document:
    """The job to debug; CommandError unless it is clear which one."""
    jobs = [document for document in documents if document.is_job]
    named = {str((job.raw.get("metadata") or {}).get("name", "")): job for job in jobs}
    if name:
        if name in named:
            return named[name]
        raise CommandError(f"there is no job {name} in the file; it has {', '.join(named)}")
    if len(jobs) > 1:
        raise CommandError(f"the file has {len(jobs)} jobs; choose by --job: {', '.join(named)}")
    return jobs[0]


async def _enter(target: Target, job: Found, options: Options) -> int:
    try:
        async with asyncio.timeout(options.seconds):
            pod = await _running_replica(target, job, options)
    except TimeoutError:
        raise CommandError(
            f"no replica of {job} runs after {options.seconds:g} s; "
            f"`trainyard explain {job.name}` tells why"
        ) from None
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not options.words and not has_terminal:
        click.echo(f"replica {replica_of(pod['metadata']['name'], job)} is running", err=True)
        return 0
    container = options.container or training_container(pod)
    words = options.words or SHELL
    return await connect(target, pod, container, words, stdin=True, is_terminal=has_terminal)


async def _running_replica(target: Target, job: Found, options: Options) -> Object:
    """The pod to enter, once its container runs; CommandError if the job ends before."""
    async with asyncio.TaskGroup() as group:
        ended = group.create_task(_fail_when_hopeless(target, job, options.replica))
        pod = await _wait_for_pod(target, job, options)
        ended.cancel()
    return pod


async def _wait_for_pod(target: Target, job: Found, options: Options) -> Object:
    states = snapshots(target.client, PODS, job.namespace, selector=labels.selector(job.uid))
    async with contextlib.aclosing(states):
        async for present in states:
            pods = list(present.values())
            names = {pod["metadata"]["name"] for pod in pods}
            names |= {replica_of(name, job) for name in names}
            if not pods or (options.replica and options.replica not in names):
                continue
            pod = choose_pod(job, pods, options.replica)
            if has_started(pod, options.container or training_container(pod)):
                return pod
    raise CommandError(f"{job} cannot be watched")


async def _fail_when_hopeless(target: Target, job: Found, replica: str) -> None:
    states = follow(target.client, job)
    async with contextlib.aclosing(states):
        async for state in states:
            if state is None:
                raise CommandError(f"{job} was deleted")
            if state.is_over:
                raise CommandError(
                    f"{job} ended before it could be entered ({state.phase}); "
                    f"`trainyard explain {job.name}` tells why"
                )
            known = [name for name in replica_names(state) if name]
            if replica and known and replica not in {*known, *(f"{job.base}-{n}" for n in known)}:
                raise CommandError(f"{job} has no replica {replica}; there are {', '.join(known)}")


def replica_names(job: Found) -> list[str]:
    """The short names of all replicas that its status tells of."""
    tasks = job.status.get("tasks") or ()
    return [replica_of(each["name"], job) for task in tasks for each in task.get("replicas") or ()]
