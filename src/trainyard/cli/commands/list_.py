"""`trainyard list`: the jobs of a namespace at a glance."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime

import click

from trainyard.api.async_client import AsyncClient
from trainyard.api.commands import Where, ask
from trainyard.api.errors import CommandError
from trainyard.api.views import Job
from trainyard.cli.job_options import with_where
from trainyard.cli.text_output import document, job_table, phase_text, running_text
from trainyard.schema.dataclass import dataclass

_KEPT_LINES = 100
"""The lines that decide how wide the columns of a new line are."""


@click.command()
@with_where
@click.option("-A", "--all-namespaces", is_flag=True, help="List the jobs of all namespaces.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="Only jobs with these labels.")
@click.option(
    "-o", "--output", type=click.Choice(["wide", "name", "json", "yaml"]), help="Another format."
)
@click.option("-w", "--watch", is_flag=True, help="Go on with a line for every change.")
@click.argument("kinds", nargs=-1, metavar="[KIND]...")
def command(
    where: Where,
    all_namespaces: bool,
    selector: str,
    output: str | None,
    watch: bool,
    kinds: tuple[str, ...],
) -> None:
    """List jobs, of all kinds or of each KIND, oldest first."""
    if watch and output not in (None, "wide"):
        raise CommandError(f"--watch prints a table; leave out -o {output}")
    request = ListRequest(kinds, selector, all_namespaces, output == "wide")
    if watch:
        ask(where, lambda client: _watch_jobs(client, request))
    else:
        ask(where, lambda client: _list(client, request, output or ""))


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Which jobs to list, and how much of each."""

    kinds: tuple[str, ...] = ()
    """None: all."""
    selector: str = ""
    everywhere: bool = False
    wide: bool = False


async def _list(client: AsyncClient, request: ListRequest, output: str) -> None:
    everywhere = request.everywhere
    jobs = await client.list(request.kinds, selector=request.selector, all_namespaces=everywhere)
    if output in ("json", "yaml"):
        items = [job.obj for job in jobs]
        click.echo(document({"apiVersion": "v1", "kind": "List", "items": items}, output))
    elif output == "name":
        for job in jobs:
            click.echo(job.full_name)
    elif not jobs:
        namespace = (await client.target()).namespace
        place = "any namespace" if everywhere else f"namespace {namespace}"
        click.echo(f"There are no jobs in {place}.", err=True)
    else:
        owner_of = await _owners(client, request)
        now = datetime.now(UTC)
        shown = {"everywhere": everywhere, "wide": request.wide}
        shown["progress"] = request.wide or any(job.progress for job in jobs)
        click.echo(job_table(jobs, now, **shown, owners=owner_of))


async def _watch_jobs(client: AsyncClient, request: ListRequest) -> None:
    """Print the present jobs, then each that changes, until interrupted."""
    changes = client.watch(
        request.kinds, selector=request.selector, all_namespaces=request.everywhere
    )
    async with contextlib.aclosing(changes):
        table = _Table(request, await _owners(client, request))
        table.print_all(await anext(changes))
        async for jobs in changes:
            for job in jobs:
                table.print_change(job)


async def _owners(client: AsyncClient, request: ListRequest) -> Mapping[str, str]:
    """The owners of namespaces, where jobs of several users may be listed."""
    return await client.owners() if request.everywhere or request.wide else {}


class _Table:
    """Prints the changes that show in the table, except ages."""

    def __init__(self, request: ListRequest, owners: Mapping[str, str]) -> None:
        self._request = request
        self._owners = owners
        self._shown: dict[str, tuple[object, ...]] = {}
        self._lines: deque[Job] = deque(maxlen=_KEPT_LINES)

    def print_all(self, jobs: list[Job]) -> None:
        """Print the whole table; its headings come even without any job."""
        for job in jobs:
            self._shown[job.uid] = _visible(job)
            self._lines.append(job)
        click.echo(self._table(jobs))

    def print_change(self, job: Job) -> None:
        """Print a line for a job if anything visible has changed."""
        if job.is_deleted:
            self._shown.pop(job.uid, None)
            metadata = {k: v for k, v in job.metadata.items() if k != "deletionTimestamp"}
            status = {**job.status, "phase": "Deleted"}
            self._print(Job(job.kind, {**job.obj, "metadata": metadata, "status": status}))
        elif self._shown.get(job.uid) != (now := _visible(job)):
            self._shown[job.uid] = now
            self._print(job)

    def _print(self, job: Job) -> None:
        self._lines.append(job)
        click.echo(self._table(list(self._lines)).splitlines()[-1])

    def _table(self, jobs: list[Job]) -> str:
        request, now = self._request, datetime.now(UTC)
        shown = {"everywhere": request.everywhere, "wide": request.wide, "progress": request.wide}
        return job_table(jobs, now, **shown, owners=self._owners)


def _visible(job: Job) -> tuple[object, ...]:
    return phase_text(job), running_text(job), job.restarts
