"""`trainyard list`: the jobs of a namespace at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import click

from trainyard.cli.format import document, table
from trainyard.cli.target import on_target
from trainyard.client.jobs import Found, kind_named, list_jobs
from trainyard.client.target import CommandError, Target, Where
from trainyard.kinds.table import Kind
from trainyard.schema.times import age, span


@click.command()
@on_target
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
        from trainyard.cli.watching import watch_jobs

        where.run(partial(watch_jobs, wish=wish))
    else:
        where.run(partial(_list, wish=wish, output=output or ""))


@dataclass(frozen=True, slots=True)
class Wish:
    """Which jobs to list, and how much of each."""

    kinds: tuple[Kind, ...] = ()
    """None: all."""
    selector: str = ""
    everywhere: bool = False
    wide: bool = False


async def _list(target: Target, *, wish: Wish, output: str) -> None:
    everywhere = wish.everywhere
    namespace = None if everywhere else target.namespace
    jobs = await list_jobs(target, namespace, wish.kinds, wish.selector)
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
        click.echo(job_table(jobs, now, everywhere=everywhere, wide=wish.wide))


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
