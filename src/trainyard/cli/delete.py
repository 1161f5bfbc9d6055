"""`trainyard delete`: jobs, and with them everything that they own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial

import click

from trainyard.api import labels
from trainyard.cli.jobs import JOB_HELP, Found, find, follow, snapshots, together
from trainyard.cli.target import CommandError, Target, Where, on_target
from trainyard.kube.errors import Conflict, NotFound
from trainyard.kube.resources import PODS


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
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
def command(
    where: Where, jobs: tuple[str, ...], wait: bool, timeout: float, ignore_not_found: bool
) -> None:
    """Delete jobs."""
    seconds = timeout if wait else None
    where.run(partial(_delete, names=jobs, seconds=seconds, lenient=ignore_not_found))


async def _delete(
    target: Target, *, names: Sequence[str], seconds: float | None, lenient: bool
) -> None:
    found = [job for job in [await _find(target, name, lenient) for name in names] if job]
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


async def _find(target: Target, name: str, lenient: bool) -> Found | None:
    try:
        return await find(target, name)
    except CommandError:
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
