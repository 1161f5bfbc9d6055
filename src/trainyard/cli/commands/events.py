"""`trainyard events`: what happened to a job and to everything that it owns."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime

import click

from trainyard.api.async_client import AsyncClient
from trainyard.api.views import Job
from trainyard.cli.commands.show import event_table
from trainyard.cli.job_options import on_job
from trainyard.cli.text_output import document


@on_job
@click.option("-w", "--watch", is_flag=True, help="Go on with what happens from now on.")
@click.option("--warnings", is_flag=True, help="Only warnings.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="The objects as stored.")
async def command(
    client: AsyncClient, job: Job, watch: bool, warnings: bool, output: str | None
) -> None:
    """List what happened to a job and its pods, oldest first."""
    found = client.events(job, follow=watch, warnings=warnings)
    async with contextlib.aclosing(found):
        if watch:
            async for event in found:
                click.echo(event_table(job, [event], datetime.now(UTC)).splitlines()[1])
        events = [event async for event in found]
    if output is not None:
        click.echo(document({"apiVersion": "v1", "kind": "List", "items": events}, output))
    elif events:
        click.echo(event_table(job, events, datetime.now(UTC)))
    else:
        what = "warnings about" if warnings else "events of"
        click.echo(f"There are no {what} {job} (events expire after about an hour).", err=True)
