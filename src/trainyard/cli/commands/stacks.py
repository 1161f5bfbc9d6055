"""`trainyard stacks`: where every rank of a job stands."""

from __future__ import annotations

import click

from trainyard.api.async_client import AsyncClient
from trainyard.api.views import Job
from trainyard.cli.job_options import on_job
from trainyard.cli.text_output import printable


@on_job
@click.option("--threads", is_flag=True, help="All threads, rather than the main one of each.")
async def command(client: AsyncClient, job: Job, threads: bool) -> None:
    """Show the Python stacks of a job's ranks, equal ones once and the odd ones first.

    Of a job that has hung and does not run any more, those that were kept when it did.
    """
    click.echo(printable(await client.stacks(job, all_threads=threads)))
