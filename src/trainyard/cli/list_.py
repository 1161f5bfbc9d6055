"""`trainyard list`: the jobs of a namespace at a glance."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from trainyard.api.aio import AsyncClient
from trainyard.cli.format import document, job_table, phase_text, running_text
from trainyard.cli.target import with_where
from trainyard.client.job import Job
from trainyard.client.jobs import kind_named
from trainyard.client.owners import owners
from trainyard.client.target import CommandError, Target, Where
from trainyard.client.watching import watch
from trainyard.kinds.table import JOB_KINDS, Kind
from trainyard.kube.client import Selection
from trainyard.kube.errors import NotFound

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
    wanted = [kind_named(kind) for kind in kinds]
    wish = Wish(tuple(wanted), selector, all_namespaces, output == "wide")
    if watch:
        where.run(lambda target: _watch_jobs(target, wish))
    else:
        where.run(lambda target: _list(target, wish, output or ""))


@dataclass(frozen=True, slots=True)
class Wish:
    """Which jobs to list, and how much of each."""

    kinds: tuple[Kind, ...] = ()
    """None: all."""
    selector: str = ""
    everywhere: bool = False
    wide: bool = False


async def _list(target: Target, wish: Wish, output: str) -> None:
    everywhere = wish.everywhere
    jobs = await _present(target, wish)
    if output in ("json", "yaml"):
        items = [job.obj for job in jobs]
        click.echo(document({"apiVersion": "v1", "kind": "List", "items": items}, output))
    elif output == "name":
        for job in jobs:
            click.echo(job.full_name)
    elif not jobs:
        place = "any namespace" if everywhere else f"namespace {target.namespace}"
        click.echo(f"There are no jobs in {place}.", err=True)
    else:
        owner_of = await _owners(target, wish)
        now = datetime.now(UTC)
        click.echo(job_table(jobs, now, everywhere=everywhere, wide=wish.wide, owners=owner_of))


async def _present(target: Target, wish: Wish) -> list[Job]:
    return await AsyncClient.of(target).list(
        [kind.kind for kind in wish.kinds],
        selector=wish.selector,
        all_namespaces=wish.everywhere,
    )


async def _watch_jobs(target: Target, wish: Wish) -> None:
    """Print the present jobs, then each that changes, until interrupted."""
    namespace = None if wish.everywhere else target.namespace
    present = await _present(target, wish)
    watch = _Watch(target, wish, namespace, await _owners(target, wish))
    watch.begin(present)
    async with asyncio.TaskGroup() as group:
        for kind in wish.kinds or JOB_KINDS.values():
            group.create_task(watch.follow(kind))


async def _owners(target: Target, wish: Wish) -> Mapping[str, str]:
    """Told where jobs of several people may be listed, and where more is wished for."""
    return await owners(target) if wish.everywhere or wish.wide else {}


class _Watch:
    """Tells changes that show in the table, ages aside."""

    def __init__(
        self, target: Target, wish: Wish, namespace: str | None, owners: Mapping[str, str]
    ) -> None:
        self._target = target
        self._wish = wish
        self._namespace = namespace
        self._owners = owners
        self._shown: dict[str, tuple[Job, tuple[object, ...]]] = {}
        self._lines: deque[Job] = deque(maxlen=_KEPT_LINES)

    def begin(self, jobs: list[Job]) -> None:
        """The table as it is now; its headers come even without any job."""
        for job in jobs:
            self._shown[job.uid] = (job, _visible(job))
            self._lines.append(job)
        click.echo(self._table(jobs))

    async def follow(self, kind: Kind) -> None:
        """Print what changes of one kind; a kind that is not served has no jobs."""
        client, selector = self._target.client, self._wish.selector
        states = watch(client, kind.resource, self._namespace, Selection(selector))
        with contextlib.suppress(NotFound):
            async with contextlib.aclosing(states):
                async for state in states:
                    for obj in state.gone:
                        self._forget(Job.listed(kind, obj))
                    for uid, (job, _) in list(self._shown.items()):
                        if job.kind is kind and uid not in state.present:
                            self._forget(job)  # deleted before the watch began
                    for obj in state.changed:
                        self._compare(Job.listed(kind, obj))

    def _compare(self, job: Job) -> None:
        if self._shown.get(job.uid, (job, ()))[1] != (now := _visible(job)):
            self._shown[job.uid] = (job, now)
            self._print(job)

    def _forget(self, job: Job) -> None:
        if self._shown.pop(job.uid, None) is not None:
            metadata = {k: v for k, v in job.metadata.items() if k != "deletionTimestamp"}
            status = {**job.status, "phase": "Deleted"}
            self._print(Job(job.kind, {**job.obj, "metadata": metadata, "status": status}))

    def _print(self, job: Job) -> None:
        self._lines.append(job)
        click.echo(self._table(list(self._lines)).splitlines()[-1])

    def _table(self, jobs: list[Job]) -> str:
        wish, now = self._wish, datetime.now(UTC)
        shown = {"everywhere": wish.everywhere, "wide": wish.wide}
        return job_table(jobs, now, **shown, owners=self._owners)


def _visible(job: Job) -> tuple[object, ...]:
    return phase_text(job), running_text(job), job.restarts
