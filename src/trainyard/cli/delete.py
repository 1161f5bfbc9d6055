"""`trainyard delete`: jobs, and with them everything that they own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import click

from trainyard.cli.options import files_option
from trainyard.cli.reading import read_jobs
from trainyard.cli.target import complete_jobs, job_command, with_where
from trainyard.client.changes import Named, delete, find_all, names_in, until_gone
from trainyard.client.job import Job
from trainyard.client.jobs import list_jobs, together
from trainyard.client.owners import own_namespaces
from trainyard.client.target import CommandError, Target, Where

_NAMED = 10
"""Jobs that the question names."""


@job_command
@with_where
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
@click.option("--all", "every", is_flag=True, help="All jobs of the namespace; asks first.")
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="With --all or -l: of all your namespaces."
)
@click.option("-y", "--yes", is_flag=True, help="With --all: do not ask.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="Jobs with these labels.")
@files_option("The jobs of a manifest.", required=False)
@click.argument("jobs", nargs=-1, metavar="JOB...", shell_complete=complete_jobs)
def command(
    where: Where,
    jobs: tuple[str, ...],
    files: tuple[str, ...],
    wait: bool,
    timeout: float,
    ignore_not_found: bool,
    every: bool,
    all_namespaces: bool,
    yes: bool,
    selector: str,
) -> None:
    """Delete jobs; their pods, Services and so on go with them."""
    named = [Named(job) for job in jobs]
    named += [name for file in files for name in names_in(read_jobs(file, where.namespace))]
    seconds = timeout if wait else None
    if (every or selector) and named:
        raise CommandError("choose jobs either by name or manifest, or by --all or -l")
    if every or selector:
        found = where.run(lambda target: _select(target, selector, everywhere=all_namespaces))
        if every and found and not yes:
            _confirm(found)
        where.run(lambda target: _delete(target, found, seconds))
        return
    if all_namespaces:
        raise CommandError("--all-namespaces goes with --all or -l, not with names")
    if not named:
        raise CommandError("which jobs? name some, or a manifest with -f FILE, or --all")
    where.run(lambda target: delete_jobs(target, named, seconds, lenient=ignore_not_found))


async def delete_jobs(
    target: Target, jobs: Sequence[Named], seconds: float | None, *, lenient: bool
) -> None:
    """Delete named jobs; with `seconds`, wait so long at most until they and their pods are gone.

    `lenient`: jobs that do not exist are passed over.
    """
    await _delete(target, await find_all(target, jobs, lenient=lenient), seconds)


async def _select(target: Target, selector: str, *, everywhere: bool) -> list[Job]:
    found = await list_jobs(target, None if everywhere else target.namespace, selector=selector)
    if everywhere and target.is_guest:
        mine = await own_namespaces(target)
        found = [job for job in found if job.namespace in mine]
    if not found:
        place = "any namespace of yours" if everywhere else f"namespace {target.namespace}"
        click.echo(f"There are no such jobs in {place}.", err=True)
    return found


def _confirm(jobs: Sequence[Job]) -> None:
    """Ask whether these are to go; CommandError where the answer is no, or nobody is there."""
    count = f"{len(jobs)} job{'s' if len(jobs) > 1 else ''}"
    listed = ", ".join(f"{job.namespace}/{job.name}" for job in jobs[:_NAMED])
    more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
    if not sys.stdin.isatty():
        raise CommandError(f"--all would delete {count}: {listed}{more}; add --yes to do so")
    click.echo(f"{listed}{more}", err=True)
    if not click.confirm(f"Delete {count}?", err=True):
        raise CommandError("nothing was deleted")


async def _delete(target: Target, found: Sequence[Job], seconds: float | None) -> None:
    await together([_delete_one(target, job) for job in found])
    if seconds is None:
        return
    try:
        async with asyncio.timeout(seconds):
            await together([until_gone(target.client, job) for job in found])
    except TimeoutError:
        raise CommandError(
            f"not everything is gone after {seconds:g} s; `trainyard explain` of a job that is "
            "left, or `trainyard events`, tells what it waits for"
        ) from None


async def _delete_one(target: Target, job: Job) -> None:
    await delete(target.client, job)
    click.echo(f"{job} deleted")
