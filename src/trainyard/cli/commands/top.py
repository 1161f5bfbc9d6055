"""`trainyard top`: what the replicas of jobs use of CPU, memory and GPUs."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

import click

from trainyard.api.async_client import AsyncClient
from trainyard.api.errors import KubeError
from trainyard.api.replica_usage import Used
from trainyard.api.views import Job, PodView
from trainyard.cli.job_options import complete_job_names, on_client
from trainyard.cli.text_output import document, table
from trainyard.schema.dataclass import dataclass

_REFRESH_SECONDS = 2.0


@click.command()
@on_client
@click.option("-A", "--all-namespaces", is_flag=True, help="The jobs of all namespaces.")
@click.option("--containers", is_flag=True, help="A line for each container.")
@click.option(
    "--sort-by", type=click.Choice(("cpu", "memory")), help="Begin with who uses the most."
)
@click.option("--once", is_flag=True, help="Print what is used now, and end.")
@click.option(
    "-o", "--output", type=click.Choice(["json", "yaml"]), help="The objects of the metrics API."
)
@click.argument("job", required=False, shell_complete=complete_job_names)
async def command(
    client: AsyncClient,
    all_namespaces: bool,
    containers: bool,
    sort_by: str | None,
    once: bool,
    output: str | None,
    job: str | None,
) -> None:
    """Show what replicas use of CPU, memory and GPUs: those of JOB, or of all jobs.

    On a terminal it goes on until JOB has ended or Ctrl-C is typed; elsewhere, or with --once, it
    prints what is used now. CPU is in thousandths of a core, GPU 100% is one GPU at work all the
    time. LATE is for how much of the time other ranks wait for one that is late again and again
    (see `explain`). GPUs are told by the embedded cluster only, of which `kubectl top` knows too;
    another cluster needs a metrics server.
    """
    found = await client.found(job) if job else None
    namespace = None if all_namespaces else (await client.target()).namespace
    request = _UsageRequest(client, found, namespace, containers, sort_by)
    if output is not None:
        items = [usage.obj for usage in await client.usage(found, all_namespaces=all_namespaces)]
        click.echo(document({"apiVersion": "v1", "kind": "List", "items": items}, output))
    elif once or not sys.stdout.isatty():
        uses = await request.uses()
        click.echo(_printed(uses, request) if uses else request.empty_text, err=not uses)
    else:
        await _refresh(request)


@dataclass(frozen=True, slots=True)
class _UsageRow:
    """A line: the usage of a pod, or of one of its containers."""

    job: str
    pod: PodView
    used: Used
    container: str = ""
    late: str = ""
    """The share of time that others wait for a rank of this pod, while it is a straggler."""

    @property
    def figures(self) -> dict[str, str]:
        """The figures, by the keys of `replica_table.HEADINGS`."""
        return {**self.used.figures(), **({"late": self.late} if self.late else {})}


@dataclass(frozen=True, slots=True)
class _UsageRequest:
    """Whose usage is shown, and how."""

    client: AsyncClient
    job: Job | None
    namespace: str | None
    by_container: bool
    order: str | None

    @property
    def empty_text(self) -> str:
        """What is printed when nothing runs."""
        if self.job is not None:
            return f"No replica of {self.job} runs ({self.job.phase})."
        place = "any namespace" if self.namespace is None else f"namespace {self.namespace}"
        return f"No replica of a job runs in {place}."

    async def uses(self) -> list[_UsageRow]:
        """Return the lines by job and replica, or in the order that was asked for."""
        found = list(await self._found())
        if order := self.order:
            found.sort(key=lambda use: -float(getattr(use.used, order)))
        return found

    async def _found(self) -> Iterator[_UsageRow]:
        usages = await self.client.usage(self.job, all_namespaces=self.namespace is None)
        late = _late(await self._jobs())
        if self.by_container:
            return (
                _UsageRow(usage.job, usage.pod, used, name, late.get(_place(usage.pod), ""))
                for usage in usages
                for name, used in sorted(usage.containers.items())
            )
        return (
            _UsageRow(usage.job, usage.pod, usage.used, late=late.get(_place(usage.pod), ""))
            for usage in usages
        )

    async def _jobs(self) -> list[Job]:
        """Return the jobs whose replicas are shown."""
        if self.job is not None:
            return [await self.client.found(self.job)]
        return await self.client.list(all_namespaces=self.namespace is None)


def _late(jobs: Iterable[Job]) -> dict[tuple[str, str], str]:
    """Return the share of late time by pod."""
    return {
        (job.namespace, str(each["replica"])): f"{each['latePercent']}%"
        for job in jobs
        if not job.is_over
        for each in reversed(job.stragglers)  # of several ranks in a pod, the latest
        if "replica" in each and "latePercent" in each
    }


def _place(pod: PodView) -> tuple[str, str]:
    return pod.namespace, pod.name


def _printed(uses: Sequence[_UsageRow], request: _UsageRequest) -> str:
    from trainyard.cli.replica_table import HEADINGS

    figures = [use.figures for use in uses]
    keys = [key for key in HEADINGS if any(key in each for each in figures)]
    first = ["JOB", "REPLICA", *(["CONTAINER"] if request.by_container else []), "PHASE"]
    if request.namespace is None:
        first.insert(0, "NAMESPACE")
    rows = []
    for use, values in zip(uses, figures, strict=True):
        row = [use.job, use.pod.replica, *([use.container] if request.by_container else [])]
        row = [use.pod.namespace, *row] if request.namespace is None else row
        rows.append([*row, use.pod.phase, *(values.get(key, "") for key in keys)])
    return table([*first, *(HEADINGS[key] for key in keys)], rows)


async def _refresh(request: _UsageRequest) -> None:
    """Redraw the table until the job is over."""
    from rich.console import Console
    from rich.live import Live

    from trainyard.cli.live_screen import ResizableLines
    from trainyard.cli.replica_table import Row, layout_lines, one_line

    uses, head = await request.uses(), await _head(request)

    def rows(uses: Iterable[_UsageRow]) -> list[Row]:
        return [Row(_name(use, request), use.pod.phase, use.figures) for use in uses]

    area = ResizableLines(
        lambda width, height: [
            one_line(head, width),
            *(layout_lines(rows(uses), width, height - 1) or [one_line(request.empty_text, width)]),
        ][:height]
    )
    with Live(area, console=Console(highlight=False), refresh_per_second=2):
        while not (request.job and (await request.client.found(request.job)).is_over):
            await asyncio.sleep(_REFRESH_SECONDS)
            uses, head = await request.uses(), await _head(request)


async def _head(request: _UsageRequest) -> str:
    now = time.strftime("%H:%M:%S")
    try:
        node = await request.client.node_usage()
    except KubeError:  # who may see jobs need not be let see nodes
        node = None
    if node is None:
        return now
    used, whole = node.used, node.capacity
    return (
        f"{now}  {node.name}: CPU {used.cpu / whole.cpu:.0%} of {whole.cpu:g}, "
        f"memory {used.memory / whole.memory:.0%} of {whole.memory / (1 << 30):.1f}Gi"
    )


def _name(use: _UsageRow, request: _UsageRequest) -> str:
    parts = [use.pod.namespace] if request.namespace is None else []
    parts += [use.job] if request.job is None else []
    return "/".join([*parts, use.pod.replica, *([use.container] if use.container else [])])
