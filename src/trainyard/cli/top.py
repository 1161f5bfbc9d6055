"""`trainyard top`: what the replicas of jobs use of CPU, memory and GPUs."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

from trainyard.cli.format import document, table
from trainyard.cli.target import complete_jobs, on_target
from trainyard.client.job import Job
from trainyard.client.jobs import find
from trainyard.client.objects import Object
from trainyard.client.pods import PodView
from trainyard.client.target import Target
from trainyard.client.usage import Used, node_line, pod_metrics, used_by
from trainyard.kinds.shared import labels
from trainyard.kube.client import Selection
from trainyard.kube.errors import KubeError
from trainyard.kube.resources import PODS

_SECONDS = 2.0


@click.command()
@on_target
@click.option("-A", "--all-namespaces", is_flag=True, help="The jobs of all namespaces.")
@click.option("--containers", is_flag=True, help="A line for each container.")
@click.option(
    "--sort-by", type=click.Choice(("cpu", "memory")), help="Begin with who uses the most."
)
@click.option("--once", is_flag=True, help="Print what is used now, and end.")
@click.option(
    "-o", "--output", type=click.Choice(["json", "yaml"]), help="The objects of the metrics API."
)
@click.argument("job", required=False, shell_complete=complete_jobs)
async def command(
    target: Target,
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
    time. GPUs are told by the embedded cluster only, of which `kubectl top` knows too; another
    cluster needs a metrics server.
    """
    found = await find(target, job) if job else None
    wish = _Wish(target, found, None if all_namespaces else target.namespace, containers, sort_by)
    if output is not None:
        metrics, _ = await wish.look()
        click.echo(document({"apiVersion": "v1", "kind": "List", "items": metrics}, output))
    elif once or not sys.stdout.isatty():
        uses = await wish.uses()
        click.echo(_printed(uses, wish) if uses else wish.nothing, err=not uses)
    else:
        await _go_on(wish)


@dataclass(frozen=True, slots=True)
class _Use:
    """What a pod, or one of its containers, uses."""

    pod: PodView
    used: Used
    container: str = ""

    @property
    def job(self) -> str:
        return str(self.pod.labels.get(labels.OWNER_NAME) or "")


@dataclass(frozen=True, slots=True)
class _Wish:
    """Whose usage is shown."""

    target: Target
    job: Job | None
    namespace: str | None
    by_container: bool
    order: str | None

    @property
    def nothing(self) -> str:
        """What is said where there is none."""
        if self.job is not None:
            return f"No replica of {self.job} runs ({self.job.phase})."
        place = "any namespace" if self.namespace is None else f"namespace {self.namespace}"
        return f"No replica of a job runs in {place}."

    async def look(self) -> tuple[list[Object], list[Object]]:
        """The PodMetrics, and the pods."""
        chosen = labels.REPLICA_TYPE if self.job is None else labels.selector(self.job.uid)
        namespace = self.namespace if self.job is None else self.job.namespace
        client = self.target.client
        metrics = await pod_metrics(client, namespace, chosen, self.target.title)
        pods, _ = await client.list(PODS, namespace, Selection(chosen))
        return metrics, pods

    async def uses(self) -> list[_Use]:
        """By job and replica, or as was wished."""
        metrics, pods = await self.look()
        views = {(view.namespace, view.name): view for view in map(PodView, pods)}
        uses = []
        for each in metrics:
            view = views.get((each["metadata"].get("namespace", ""), each["metadata"]["name"]))
            if view is None:
                continue
            if self.by_container:
                told = each.get("containers") or ()
                uses += [_Use(view, Used.of([c.get("usage") or {}]), c["name"]) for c in told]
            else:
                uses.append(_Use(view, used_by(each)))
        order = self.order
        if order:
            return sorted(uses, key=lambda use: -float(getattr(use.used, order)))
        return sorted(uses, key=_place)


def _place(use: _Use) -> tuple[str, str, str, int, str]:
    pod = use.pod
    return pod.namespace, use.job, pod.replica_type, pod.index, use.container


def _printed(uses: Sequence[_Use], wish: _Wish) -> str:
    headers = {"cpu": "CPU", "memory": "MEMORY", "gpu": "GPU", "gpu_memory": "GPU-MEMORY"}
    figures = [use.used.figures() for use in uses]
    keys = [key for key in headers if any(key in told for told in figures)]
    first = ["JOB", "REPLICA", *(["CONTAINER"] if wish.by_container else []), "PHASE"]
    if wish.namespace is None:
        first.insert(0, "NAMESPACE")
    rows = []
    for use, told in zip(uses, figures, strict=True):
        row = [use.job, use.pod.replica, *([use.container] if wish.by_container else [])]
        row = [use.pod.namespace, *row] if wish.namespace is None else row
        rows.append([*row, use.pod.phase, *(told.get(key, "") for key in keys)])
    return table([*first, *(headers[key] for key in keys)], rows)


async def _go_on(wish: _Wish) -> None:
    """Draw it again and again, until the job is over."""
    from rich.console import Console
    from rich.live import Live

    from trainyard.cli.live import Area
    from trainyard.cli.rows import Row, lay_out, one_line

    uses, head = await wish.uses(), await _head(wish)

    def rows(uses: Iterable[_Use]) -> list[Row]:
        return [Row(_name(use, wish), use.pod.phase, use.used.figures()) for use in uses]

    area = Area(
        lambda width, height: [
            one_line(head, width),
            *(lay_out(rows(uses), width, height - 1) or [one_line(wish.nothing, width)]),
        ][:height]
    )
    with Live(area, console=Console(highlight=False), refresh_per_second=2):
        while not (wish.job and (await find(wish.target, wish.job.full_name)).is_over):
            await asyncio.sleep(_SECONDS)
            uses, head = await wish.uses(), await _head(wish)


async def _head(wish: _Wish) -> str:
    now = time.strftime("%H:%M:%S")
    try:
        line = await node_line(wish.target.client)
    except KubeError:  # who may see jobs need not be let see nodes
        line = ""
    return f"{now}  {line}".rstrip()


def _name(use: _Use, wish: _Wish) -> str:
    parts = [use.pod.namespace] if wish.namespace is None else []
    parts += [use.job] if wish.job is None else []
    return "/".join([*parts, use.pod.replica, *([use.container] if use.container else [])])
