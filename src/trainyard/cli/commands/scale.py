"""`trainyard scale`: change the size of an elastic job while it trains."""

from __future__ import annotations

import click

from trainyard.api.async_client import AsyncClient
from trainyard.api.views import Job
from trainyard.cli.job_options import on_job


@on_job
@click.option("--replicas", type=int, required=True, metavar="N", help="The new size.")
async def command(client: AsyncClient, job: Job, replicas: int) -> None:
    """Change how many replicas an elastic job should have.

    This sets `spec.elastic.expectedReplicas`; the job runs with as many as fit, from
    `minReplicas` up.
    """
    before = await client.scale(job, replicas)
    if before == replicas:
        click.echo(f"{job} is to have {replicas} replicas already")
    else:
        click.echo(f"{job} scaled from {'?' if before is None else before} to {replicas} replicas")
