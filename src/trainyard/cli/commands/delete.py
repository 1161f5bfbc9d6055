"""`trainyard delete`: jobs, and with them everything that they own."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from trainyard.api.async_client import AsyncClient
from trainyard.api.commands import Where, ask
from trainyard.api.errors import CommandError
from trainyard.api.job_changes import Named, names_in
from trainyard.api.views import Job
from trainyard.cli.job_options import complete_job_names, job_command, with_where
from trainyard.cli.manifest_input import read_jobs
from trainyard.cli.options import files_option

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
@files_option("The jobs of a manifest.")
@click.argument("jobs", nargs=-1, metavar="JOB...", shell_complete=complete_job_names)
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
        found = ask(where, lambda c: _select(c, selector, everywhere=all_namespaces))
        if every and found and not yes:
            _confirm(found)
        ask(where, lambda c: _delete(c, found, seconds, lenient=True))
        return
    if all_namespaces:
        raise CommandError("--all-namespaces goes with --all or -l, not with names")
    if not named:
        raise CommandError("which jobs? name some, or a manifest with -f FILE, or --all")
    ask(where, lambda c: _delete(c, named, seconds, lenient=ignore_not_found))


async def _select(client: AsyncClient, selector: str, *, everywhere: bool) -> list[Job]:
    found = await client.list(selector=selector, all_namespaces=everywhere)
    target = await client.target()
    if everywhere and target.is_guest:
        mine = await client.own_namespaces()
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


async def _delete(
    client: AsyncClient, jobs: Sequence[Named | Job], seconds: float | None, *, lenient: bool
) -> None:
    found = await client.delete(jobs, missing_ok=lenient)
    for job in found:
        click.echo(f"{job} deleted")
    if seconds is not None:
        await client.wait_until_gone(found, timeout=seconds)
