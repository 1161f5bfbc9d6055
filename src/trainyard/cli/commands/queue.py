"""`trainyard queue`: Queues, by which jobs share the machine or the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from trainyard.api.async_client import AsyncClient
from trainyard.api.errors import CommandError
from trainyard.api.views import Object
from trainyard.cli.job_options import on_client
from trainyard.cli.text_output import document, indent, job_table, table
from trainyard.kinds.kind_registry import KINDS
from trainyard.schema.times import age

_KIND = KINDS["Queue"]


@click.group()
def command() -> None:
    """Queues: quota, priority and order of jobs with `scheduler.t9kScheduler`."""


@command.command("list")
@on_client
@click.option("-o", "--output", type=click.Choice(["name", "json", "yaml"]))
async def list_queues(client: AsyncClient, output: str | None) -> None:
    """List queues."""
    queues = await client.queues()
    if output in ("json", "yaml"):
        click.echo(document({"apiVersion": "v1", "kind": "List", "items": queues}, output))
    elif output == "name":
        for queue in queues:
            click.echo(f"{_KIND.singular}.{_KIND.group}/{queue['metadata']['name']}")
    elif queues:
        click.echo(queue_table(queues, datetime.now(UTC)))
    else:
        click.echo("There are no queues.", err=True)


@command.command("show")
@on_client
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]))
@click.argument("name")
async def show_queue(client: AsyncClient, name: str, output: str | None) -> None:
    """Show a queue: what it allows, what is in use, and the jobs in it."""
    queue = await client.queue(name)
    if output is not None:
        click.echo(document(queue, output))
        return
    jobs = [job for job in await client.list(all_namespaces=True) if job.queue == name]
    now = datetime.now(UTC)
    click.echo(_described(queue, now))
    if jobs:
        listed = job_table(jobs, now, everywhere=True, wide=False)
        click.echo(f"\nJobs:\n  {indent(listed, 2)}")


@command.command("create")
@on_client
@click.option(
    "--quota",
    multiple=True,
    metavar="RESOURCE=N",
    callback=lambda _context, _parameter, texts: dict(map(limit, texts)),
    help="A limit such as nvidia.com/gpu=8.",
)
@click.option("--priority", type=click.IntRange(0, 100), help="0 to 100; higher goes first.")
@click.option("--max-duration", metavar="TIME", help="Pods older than this are ended: 1d12h.")
@click.option("--closed", is_flag=True, help="Let nothing start for now.")
@click.argument("name")
async def create_queue(client: AsyncClient, name: str, **given: Any) -> None:
    """Create a queue."""
    await client.create_queue(name, **given)
    click.echo(f"Queue {name} created")


@command.command("close")
@on_client
@click.argument("name")
async def close_queue(client: AsyncClient, name: str) -> None:
    """Let nothing more start through a queue; what runs goes on."""
    await client.close_queue(name)
    click.echo(f"Queue {name} closed")


@command.command("open")
@on_client
@click.argument("name")
async def open_queue(client: AsyncClient, name: str) -> None:
    """Let jobs start through a closed queue again."""
    await client.open_queue(name)
    click.echo(f"Queue {name} opened")


@command.command("delete")
@on_client
@click.argument("name")
async def delete_queue(client: AsyncClient, name: str) -> None:
    """Delete a queue; jobs in it keep running."""
    await client.delete_queue(name)
    click.echo(f"Queue {name} deleted")


def limit(text: str) -> tuple[str, str]:
    """A resource and its amount, of `nvidia.com/gpu=8`."""
    resource, equals, amount = text.partition("=")
    if not (resource and equals and amount):
        raise CommandError(f"--quota {text} is not of the form RESOURCE=N, e.g. nvidia.com/gpu=8")
    return resource, amount


def queue_table(queues: list[Object], now: datetime) -> str:
    """One line per queue."""
    headers = ("NAME", "STATE", "PRIORITY", "USED/QUOTA", "RUNNING", "PENDING", "AGE")
    return table(headers, [_row(queue, now) for queue in queues])


def _row(queue: Object, now: datetime) -> list[object]:
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    pods = status.get("pods") or {}
    return [
        queue["metadata"]["name"],
        _state(spec),
        spec.get("priority", 0),
        _usage(spec, status),
        pods.get("running", 0),
        pods.get("pending", 0),
        age(queue["metadata"].get("creationTimestamp"), now),
    ]


def _state(spec: Mapping[str, Any]) -> str:
    return "Closed" if spec.get("closed") else "Open"


def _usage(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """`cpu 2/16, nvidia.com/gpu 4/8`: of what is limited."""
    quota = (spec.get("quota") or {}).get("requests") or {}
    used = status.get("allocated") or {}
    return ", ".join(f"{name} {used.get(name, 0)}/{limit}" for name, limit in quota.items())


def _described(queue: Object, now: datetime) -> str:
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    pods = status.get("pods") or {}
    created = queue["metadata"].get("creationTimestamp")
    facts = {
        "Name": queue["metadata"]["name"],
        "State": _state(spec),
        "Priority": spec.get("priority", 0),
        "Preemptible": "yes" if spec.get("preemptible", True) else "no",
        "Max duration": spec.get("maxDuration", ""),
        "Used/quota": _usage(spec, status) or "no limits",
        "Pods": ", ".join(f"{count} {phase}" for phase, count in pods.items() if count) or "none",
        "Created": f"{age(created, now)} ago",
    }
    return "\n".join(f"{key + ':':<14}{value}" for key, value in facts.items() if value != "")
