"""`trainyard history`: the jobs that were recorded on this machine, gone ones too."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime

import click

from trainyard.cli.format import table
from trainyard.client.origin import Past, dirt, pasts
from trainyard.kinds.shared import labels
from trainyard.kube.embedded import state_folder
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
    found = list(itertools.islice(pasts(state_folder(), name, namespace), limit))
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
    result, commit = past.result, past.annotation(labels.COMMIT)
    is_dirty = past.changes is not None and past.changes.is_dirty
    return [
        past.record_name,
        past.job.name,
        age(past.record.created if past.record else None, now),
        result["phase"],
        duration(result["seconds"]) if result["seconds"] is not None else "",
        f"{commit[:8]}{'+' if is_dirty else ''}" if commit else "",
        past.annotation(labels.COMMAND),
    ]


def _row(past: Past) -> dict[str, object]:
    record = past.record
    return {
        "record": past.record_name,
        "folder": str(record.folder) if record else "",
        "kind": past.job.kind.kind,
        "namespace": past.job.namespace,
        "name": past.job.name,
        "created": record.created if record else "",
        "command": past.annotation(labels.COMMAND),
        "commit": past.annotation(labels.COMMIT),
        "changes": dirt(past.changes),
        "interpreter": past.annotation(labels.INTERPRETER),
        **past.result,
    }
