"""`trainyard resume`: go on with a paused job."""

from __future__ import annotations

from collections.abc import Sequence

import click

from trainyard.api.async_client import AsyncClient
from trainyard.cli.job_options import job_command, jobs_argument, on_client


@job_command
@on_client
@jobs_argument
async def command(client: AsyncClient, jobs: Sequence[str]) -> None:
    """Resume paused jobs; their `resumeSpecs` apply from then on."""
    for name in jobs:
        job = await client.found(name)
        is_new = await client.resume(job)
        click.echo(f"{job} resumed" if is_new else f"{job} is not paused")
