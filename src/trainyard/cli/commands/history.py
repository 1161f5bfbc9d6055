"""`trainyard history`: the jobs that were recorded on this machine, gone ones too."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime

import click

from trainyard.api.recorded_jobs import Past, dirt, history
from trainyard.cli.text_output import table
from trainyard.schema.times import age, duration


@click.command()
@click.argument("name", default="", metavar="[NAME]")
@click.option("-n", "--namespace", default="", metavar="NAME", help="Namespace of the jobs.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many at most."
)
@click.option("-o", "--output", type=click.Choice(["json"]), help="All that is known of each.")
def command(name: str, namespace: str, limit: int, output: str | None) -> None:
    """List the jobs that were submitted on this machine, newest first; those of NAME only.

    How they ended is known of those that `run` or `delete` saw the end of.
    """
    found = history(name, namespace=namespace, limit=limit)
    if output:
        click.echo(json.dumps([_row(past) for past in found], indent=2, ensure_ascii=False))
        return
    if not found:
        click.echo("Nothing is recorded here.", err=True)
        return
    now = datetime.now(UTC)
    click.echo(
        table(
            ("RECORD", "JOB", "AGE", "PHASE", "TOOK", "CODE", "COMMAND"),
            (_cells(past, now) for past in found),
        )
    )


def _cells(past: Past, now: datetime) -> list[object]:
    result, commit = past.result, past.commit
    is_dirty = past.changes is not None and past.changes.is_dirty
    return [
        past.record_name,
        past.job.name,
        age(past.created, now),
        result.phase,
        duration(result.seconds) if result.seconds is not None else "",
        f"{commit[:8]}{'+' if is_dirty else ''}" if commit else "",
        past.command,
    ]


def _row(past: Past) -> dict[str, object]:
    return {
        "record": past.record_name,
        "folder": str(past.record.folder) if past.record else "",
        "kind": past.job.kind.kind,
        "namespace": past.job.namespace,
        "name": past.job.name,
        "created": past.created,
        "command": past.command,
        "commit": past.commit,
        "changes": dirt(past.changes),
        "interpreter": past.interpreter,
        **asdict(past.result),
    }
