"""`trainyard list`: the jobs of a namespace at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import click

from trainyard.cli.format import age, document, span, table
from trainyard.cli.jobs import Found, kind_named, list_jobs
from trainyard.cli.target import Target, Where, on_target


@click.command()
@on_target
@click.option("-A", "--all-namespaces", is_flag=True, help="List the jobs of all namespaces.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="Only jobs with these labels.")
@click.option(
    "-o", "--output", type=click.Choice(["wide", "name", "json", "yaml"]), help="Another format."
)
@click.argument("kinds", nargs=-1, metavar="[KIND]...")
def command(
    where: Where,
    all_namespaces: bool,
    selector: str,
    output: str | None,
    kinds: tuple[str, ...],
) -> None:
    """List jobs, of all kinds or of each KIND, oldest first."""
    where.run(
        partial(
            _list, everywhere=all_namespaces, selector=selector, output=output or "", kinds=kinds
        )
    )


async def _list(
    target: Target, *, everywhere: bool, selector: str, output: str, kinds: Sequence[str]
) -> None:
    namespace = None if everywhere else target.namespace
    jobs = await list_jobs(target, namespace, [kind_named(kind) for kind in kinds], selector)
    if output in ("json", "yaml"):
        items = [job.obj for job in jobs]
        click.echo(document({"apiVersion": "v1", "kind": "List", "items": items}, output))
    elif output == "name":
        for job in jobs:
            click.echo(f"{job.kind.singular}.{job.kind.group}/{job.name}")
    elif not jobs:
        place = "any namespace" if everywhere else f"namespace {target.namespace}"
        click.echo(f"There are no jobs in {place}.", err=True)
    else:
        now = datetime.now(UTC)
        click.echo(job_table(jobs, now, everywhere=everywhere, wide=output == "wide"))


def job_table(jobs: Sequence[Found], now: datetime, *, everywhere: bool, wide: bool) -> str:
    """One line per job."""
    headers = ["NAME", "KIND", "PHASE", "RUNNING", "RESTARTS", "AGE"]
    if everywhere:
        headers.insert(0, "NAMESPACE")
    if wide:
        headers += ["DURATION", "QUEUE", "REASON"]
    return table(headers, [_row(job, now, everywhere=everywhere, wide=wide) for job in jobs])


def _row(job: Found, now: datetime, *, everywhere: bool, wide: bool) -> list[object]:
    row: list[object] = [job.namespace] if everywhere else []
    row += [
        job.name,
        job.kind.kind,
        phase_text(job),
        running_text(job),
        restarts(job),
        age(job.obj["metadata"].get("creationTimestamp"), now),
    ]
    if wide:
        row += [
            span(job.status.get("startTime"), job.status.get("completionTime"), now),
            queue_of(job),
            reason(job),
        ]
    return row


def phase_text(job: Found) -> str:
    """The phase, or Terminating for a job that is being deleted."""
    return "Terminating" if job.obj["metadata"].get("deletionTimestamp") else job.phase


def running_text(job: Found) -> str:
    """How many replicas run, of how many: `3/4`; empty before any is known."""
    counts = job.status.get("aggregate") or {}
    return f"{counts.get('running', 0)}/{sum(counts.values())}" if counts else ""


def restarts(job: Found) -> int:
    """Restarts that counted: of the job where it has a budget, else of its replicas."""
    spent = job.status.get("backoffCount")
    if spent is not None:
        return int(spent)
    return sum(task.get("restartCount") or 0 for task in job.status.get("tasks") or ())


def queue_of(job: Found) -> str:
    """The queue that the job asks for; empty without one."""
    scheduler = (job.obj.get("spec") or {}).get("scheduler") or {}
    return str((scheduler.get("t9kScheduler") or {}).get("queue") or "")


def reason(job: Found) -> str:
    """One word on why the job is not running, where there is one."""
    for condition in job.status.get("conditions") or ():
        if condition["type"] == "Running" and condition["status"] != "True":
            word = condition.get("reason") or ""
            return "" if word == "-" else str(word)
    return ""
