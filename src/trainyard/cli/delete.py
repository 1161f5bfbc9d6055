"""`trainyard delete`: jobs, and with them everything that they own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from trainyard.cli import completion
from trainyard.cli.submit import read_jobs
from trainyard.cli.target import on_target
from trainyard.client.jobs import (
    JOB_HELP,
    Found,
    JobNotFound,
    find,
    follow,
    list_jobs,
    snapshots,
    together,
)
from trainyard.client.target import CommandError, Target, Where
from trainyard.kinds.shared import labels
from trainyard.kube.errors import Conflict, NotFound
from trainyard.kube.resources import PODS

if TYPE_CHECKING:
    from trainyard.manifest.reader import ReadResult


@click.command(help=f"Delete jobs; their pods, Services and so on go with them.\n\n{JOB_HELP}")
@on_target
@click.option("--wait", is_flag=True, help="Return when the job and all its pods are gone.")
@click.option(
    "--timeout",
    default=300.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="With --wait: give up after so long, with exit code 1.",
)
@click.option("--ignore-not-found", is_flag=True, help="A job that does not exist is no error.")
@click.option("--all", "every", is_flag=True, help="All jobs of the namespace.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="Jobs with these labels.")
@click.option(
    "-f", "--filename", "files", multiple=True, metavar="FILE", help="The jobs of a manifest."
)
@click.argument("jobs", nargs=-1, metavar="JOB...", shell_complete=completion.jobs)
def command(
    where: Where,
    jobs: tuple[str, ...],
    files: tuple[str, ...],
    wait: bool,
    timeout: float,
    ignore_not_found: bool,
    every: bool,
    selector: str,
) -> None:
    """Delete jobs."""
    named = [Named(job) for job in jobs]
    named += [name for file in files for name in names_in(read_jobs(file, where.namespace))]
    seconds = timeout if wait else None
    if (every or selector) and named:
        raise CommandError("choose jobs either by name or manifest, or by --all or -l")
    if every or selector:
        where.run(partial(_delete_selected, selector=selector, seconds=seconds))
        return
    if not named:
        raise CommandError("which jobs? name some, or a manifest with -f FILE, or --all")
    where.run(partial(delete_jobs, jobs=named, seconds=seconds, lenient=ignore_not_found))


class Named(NamedTuple):
    """A job as the user named it; without a namespace, in the one that is chosen."""

    text: str
    namespace: str = ""


def names_in(result: ReadResult) -> list[Named]:
    """The jobs of a manifest."""
    found = [(job.kind, job.metadata) for job in result.jobs]
    return [Named(f"{kind}/{meta.name}", meta.namespace) for kind, meta in found if meta.name]


async def delete_jobs(
    target: Target, *, jobs: Sequence[Named], seconds: float | None, lenient: bool
) -> None:
    """Delete named jobs; with `seconds`, wait so long at most until they and their pods are gone.

    `lenient`: jobs that do not exist are passed over.
    """
    found = [job for job in [await _find(target, name, lenient) for name in jobs] if job]
    await _delete(target, found, seconds)


async def _delete_selected(target: Target, *, selector: str, seconds: float | None) -> None:
    found = await list_jobs(target, target.namespace, selector=selector)
    if not found:
        click.echo(f"There are no such jobs in namespace {target.namespace}.", err=True)
    await _delete(target, found, seconds)


async def _delete(target: Target, found: Sequence[Found], seconds: float | None) -> None:
    await together([_delete_one(target, job) for job in found])
    if seconds is None:
        return
    try:
        async with asyncio.timeout(seconds):
            await together([_until_gone(target, job) for job in found])
    except TimeoutError:
        raise CommandError(
            f"not everything is gone after {seconds:g} s; `trainyard explain` of a job that is "
            "left, or `trainyard events`, tells what it waits for"
        ) from None


async def _find(target: Target, name: Named, lenient: bool) -> Found | None:
    if name.namespace:
        target = replace(target, namespace=name.namespace)
    try:
        return await find(target, name.text)
    except JobNotFound:
        if lenient:
            return None
        raise


async def _delete_one(target: Target, job: Found) -> None:
    # Deleted or replaced by someone else in between: the job that was meant is gone.
    with contextlib.suppress(NotFound, Conflict):
        await target.client.delete(
            job.resource, job.name, job.namespace, uid=job.uid, propagation="Background"
        )
    click.echo(f"{job} deleted")


async def _until_gone(target: Target, job: Found) -> None:
    states = follow(target.client, job)
    async with contextlib.aclosing(states):
        async for state in states:
            if state is None:
                break
    pods = snapshots(target.client, PODS, job.namespace, selector=labels.selector(job.uid))
    async with contextlib.aclosing(pods):
        async for present in pods:
            if not present:
                return
