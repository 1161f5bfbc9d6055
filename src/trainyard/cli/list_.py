"""`trainyard list`: the jobs of a namespace at a glance."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime

import click

from trainyard.api.aio import AsyncClient
from trainyard.api.commands import Where, ask
from trainyard.api.errors import CommandError
from trainyard.api.views import Job
from trainyard.cli.format import document, job_table, phase_text, running_text
from trainyard.cli.target import with_where
from trainyard.schema.dataclass import dataclass

_KEPT_LINES = 100
"""New lines have columns as wide as the last ones needed."""


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
    wish = Wish(kinds, selector, all_namespaces, output == "wide")
    if watch:
        ask(where, lambda client: _watch_jobs(client, wish))
    else:
        ask(where, lambda client: _list(client, wish, output or ""))


@dataclass(frozen=True, slots=True)
class Wish:
    """Which jobs to list, and how much of each."""

    kinds: tuple[str, ...] = ()
    """None: all."""
    selector: str = ""
    everywhere: bool = False
    wide: bool = False


async def _list(client: AsyncClient, wish: Wish, output: str) -> None:
    everywhere = wish.everywhere
    jobs = await client.list(wish.kinds, selector=wish.selector, all_namespaces=everywhere)
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
        owner_of = await _owners(client, wish)
        now = datetime.now(UTC)
        shown = {"everywhere": everywhere, "wide": wish.wide}
        shown["progress"] = wish.wide or any(job.progress for job in jobs)
        click.echo(job_table(jobs, now, **shown, owners=owner_of))


async def _watch_jobs(client: AsyncClient, wish: Wish) -> None:
    """Print the present jobs, then each that changes, until interrupted."""
    changes = client.watch(wish.kinds, selector=wish.selector, all_namespaces=wish.everywhere)
    async with contextlib.aclosing(changes):
        table = _Table(wish, await _owners(client, wish))
        table.begin(await anext(changes))
        async for jobs in changes:
            for job in jobs:
                table.tell(job)


async def _owners(client: AsyncClient, wish: Wish) -> Mapping[str, str]:
    """Told where jobs of several people may be listed, and where more is wished for."""
    return await client.owners() if wish.everywhere or wish.wide else {}


class _Table:
    """Tells changes that show in the table, ages aside."""

    def __init__(self, wish: Wish, owners: Mapping[str, str]) -> None:
        self._wish = wish
        self._owners = owners
        self._shown: dict[str, tuple[object, ...]] = {}
        self._lines: deque[Job] = deque(maxlen=_KEPT_LINES)

    def begin(self, jobs: list[Job]) -> None:
        """The table as it is now; its headers come even without any job."""
        for job in jobs:
            self._shown[job.uid] = _visible(job)
            self._lines.append(job)
        click.echo(self._table(jobs))

    def tell(self, job: Job) -> None:
        """A line for a job that has changed, if that is to be seen."""
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
        wish, now = self._wish, datetime.now(UTC)
        shown = {"everywhere": wish.everywhere, "wide": wish.wide, "progress": wish.wide}
        return job_table(jobs, now, **shown, owners=self._owners)


def _visible(job: Job) -> tuple[object, ...]:
    return phase_text(job), running_text(job), job.restarts
