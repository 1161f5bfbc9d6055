"""`trainyard queue`: Queues, by which jobs share the machine or the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from trainyard.cli.format import document, indent, job_table, table
from trainyard.cli.target import on_target, with_where
from trainyard.client.jobs import list_jobs
from trainyard.client.objects import Object
from trainyard.client.target import CommandError, Target, Where
from trainyard.kinds.table import KINDS
from trainyard.kube.errors import AlreadyExists, NotFound
from trainyard.schema.times import age

_KIND = KINDS["Queue"]
QUEUES = _KIND.resource


@click.group()
def command() -> None:
    """Queues: quota, priority and order of jobs with `scheduler.t9kScheduler`."""


@command.command("list")
@on_target
@click.option("-o", "--output", type=click.Choice(["name", "json", "yaml"]))
async def list_queues(target: Target, output: str | None) -> None:
    """List queues."""
    queues, _ = await target.client.list(QUEUES)
    queues.sort(key=lambda queue: queue["metadata"]["name"])
    if output in ("json", "yaml"):
        head = {"apiVersion": _KIND.api_version, "kind": _KIND.kind}
        items = [{**head, **queue} for queue in queues]
        click.echo(document({"apiVersion": "v1", "kind": "List", "items": items}, output))
    elif output == "name":
        for queue in queues:
            click.echo(f"{_KIND.singular}.{_KIND.group}/{queue['metadata']['name']}")
    elif queues:
        click.echo(queue_table(queues, datetime.now(UTC)))
    else:
        click.echo("There are no queues.", err=True)


@command.command("show")
@on_target
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]))
@click.argument("name")
async def show_queue(target: Target, name: str, output: str | None) -> None:
    """Show a queue: what it allows, what is in use, and the jobs in it."""
    queue = await _read(target, name)
    if output is not None:
        click.echo(document(queue, output))
        return
    jobs = [job for job in await list_jobs(target, None) if job.queue == name]
    now = datetime.now(UTC)
    click.echo(_described(queue, now))
    if jobs:
        listed = job_table(jobs, now, everywhere=True, wide=False)
        click.echo(f"\nJobs:\n  {indent(listed, 2)}")


@command.command("create")
@with_where
@click.option(
    "--quota", multiple=True, metavar="RESOURCE=N", help="A limit such as nvidia.com/gpu=8."
)
@click.option("--priority", type=click.IntRange(0, 100), help="0 to 100; higher goes first.")
@click.option("--max-duration", metavar="TIME", help="Pods older than this are ended: 1d12h.")
@click.option("--closed", is_flag=True, help="Let nothing start for now.")
@click.argument("name")
def create_queue(where: Where, name: str, **given: Any) -> None:
    """Create a queue."""
    queue = new_queue(name, **given)
    where.run(lambda target: _create(target, queue))


@command.command("close")
@on_target
@click.argument("name")
async def close_queue(target: Target, name: str) -> None:
    """Let nothing more start through a queue; what runs goes on."""
    await _set_closed(target, name, closed=True)


@command.command("open")
@on_target
@click.argument("name")
async def open_queue(target: Target, name: str) -> None:
    """Let jobs start through a closed queue again."""
    await _set_closed(target, name, closed=False)


@command.command("delete")
@on_target
@click.argument("name")
async def delete_queue(target: Target, name: str) -> None:
    """Delete a queue; jobs in it keep running."""
    queue = await _read(target, name)
    await target.client.delete(QUEUES, name, uid=queue["metadata"]["uid"])
    click.echo(f"Queue {name} deleted")


def new_queue(
    name: str,
    *,
    quota: tuple[str, ...] = (),
    priority: int | None = None,
    max_duration: str | None = None,
    closed: bool = False,
) -> Object:
    """A Queue from what the user said; CommandError when it breaks a rule."""
    from trainyard.kinds.admission import admit

    wanted = {
        "quota": {"requests": dict(_limit(text) for text in quota)} if quota else None,
        "priority": priority,
        "maxDuration": max_duration,
        "closed": closed or None,
    }
    spec = {field: value for field, value in wanted.items() if value is not None}
    head = {"apiVersion": _KIND.api_version, "kind": _KIND.kind}
    admission = admit({**head, "metadata": {"name": name}, "spec": spec})
    if admission.errors:
        problems = "; ".join(problem.detail for problem in admission.errors)
        raise CommandError(f"cannot create queue {name}: {problems}")
    return admission.obj


def _limit(text: str) -> tuple[str, str]:
    resource, equals, amount = text.partition("=")
    if not (resource and equals and amount):
        raise CommandError(f"--quota {text} is not of the form RESOURCE=N, e.g. nvidia.com/gpu=8")
    return resource, amount


async def _read(target: Target, name: str) -> Object:
    try:
        return await target.client.get(QUEUES, name)
    except NotFound:
        queues, _ = await target.client.list(QUEUES)
        known = ", ".join(sorted(queue["metadata"]["name"] for queue in queues)) or "none"
        raise CommandError(f"there is no queue {name}; there are: {known}") from None


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


async def _create(target: Target, queue: Object) -> None:
    name = queue["metadata"]["name"]
    try:
        await target.client.create(QUEUES, queue)
    except AlreadyExists:
        raise CommandError(
            f"queue {name} exists already; change it with kubectl, or delete it first "
            f"(trainyard queue delete {name})"
        ) from None
    click.echo(f"Queue {name} created")


async def _set_closed(target: Target, name: str, *, closed: bool) -> None:
    await _read(target, name)
    await target.client.patch(QUEUES, name, {"spec": {"closed": closed}})
    click.echo(f"Queue {name} {'closed' if closed else 'opened'}")
