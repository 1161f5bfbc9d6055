"""`trainyard explain`: why a job is pending, restarting, failed or stuck, and what to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial

import click

from trainyard import diagnosis
from trainyard.cli import completion
from trainyard.cli.format import printable
from trainyard.cli.target import on_target
from trainyard.client.jobs import JOB_HELP, events_of, find, pods_of
from trainyard.client.target import Target, Where
from trainyard.diagnosis import Cause, Situation
from trainyard.kube.embedded import is_full

_MOST_WARNINGS = 5


@click.command(
    help="Say why a job is pending, restarting, failed or stuck: the cause, how it shows, and "
    f"what to do.\n\n{JOB_HELP}"
)
@on_target
@click.option("-o", "--output", type=click.Choice(["json"]), help="The causes as JSON.")
@click.argument("job", shell_complete=completion.jobs)
def command(where: Where, job: str, output: str | None) -> None:
    """Say why a job is where it is."""
    where.run(partial(_explain, name=job, output=output))


async def _explain(target: Target, *, name: str, output: str | None) -> None:
    job = await find(target, name)
    situation = Situation(
        job.obj,
        await pods_of(target.client, job),
        await events_of(target.client, job),
        now=datetime.now(UTC),
        is_local=target.folder is not None,
        full_disk=str(target.folder) if target.folder and is_full(target.folder) else "",
    )
    found = diagnosis.causes(situation)
    if output == "json":
        told = {"job": situation.title, "phase": situation.phase}
        listed = [asdict(cause) for cause in found]
        told_warnings = diagnosis.warnings(situation, found)
        click.echo(json.dumps({**told, "causes": listed, "warnings": told_warnings}, indent=2))
        return
    click.echo(render(situation, found))


def render(situation: Situation, found: Sequence[Cause]) -> str:
    """The answer as text: the first cause in the headline, then what shows it and what helps."""
    lines = [diagnosis.headline(situation, list(found))]
    if found:
        lines += _details(found[0])
    for cause in found[1:]:
        lines += ["", f"Also: {cause.what}", *_details(cause)]
    if said := diagnosis.warnings(situation, found):
        lines += ["", "Warnings:", *(f"  - {text}" for text in said[-_MOST_WARNINGS:])]
    return printable("\n".join(lines))


def _details(cause: Cause) -> list[str]:
    lines = [f"    {text}" for text in cause.evidence]
    return lines + [f"  → {text}" for text in cause.advice]
