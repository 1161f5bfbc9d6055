"""`trainyard pause`: keep a job and free what it holds. `resume` is its counterpart."""

from __future__ import annotations

from collections.abc import Sequence

import click

from trainyard.api.async_client import AsyncClient
from trainyard.cli.job_options import job_command, jobs_argument, on_client


@job_command
@on_client
@jobs_argument
async def command(client: AsyncClient, jobs: Sequence[str]) -> None:
    """Pause jobs: their pods end gracefully, the jobs stay.

    `trainyard resume` starts them again, at no cost of restarts.
    """
    for name in jobs:
        job = await client.found(name)
        is_new = await client.pause(job)
        click.echo(f"{job} paused" if is_new else f"{job} is already paused")
