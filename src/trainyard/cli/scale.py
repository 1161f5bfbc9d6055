"""`trainyard scale`: change the size of an elastic job while it trains."""

from __future__ import annotations

from functools import partial

import click

from trainyard.cli import completion
from trainyard.cli.target import job_help, on_target
from trainyard.client.changes import scale
from trainyard.client.jobs import find
from trainyard.client.target import Target, Where


@click.command(
    help="Change how many replicas an elastic job should have.\n\n"
    "This sets `spec.elastic.expectedReplicas`; the job runs with as many as fit, from "
    f"`minReplicas` up.\n\n{job_help()}"
)
@on_target
@click.option("--replicas", type=int, required=True, metavar="N", help="The new size.")
@click.argument("job", shell_complete=completion.jobs)
def command(where: Where, job: str, replicas: int) -> None:
    """Change the size of an elastic job."""
    where.run(partial(_scale, name=job, replicas=replicas))


async def _scale(target: Target, *, name: str, replicas: int) -> None:
    job = await find(target, name)
    before = await scale(target.client, job, replicas)
    if before == replicas:
        click.echo(f"{job} is to have {replicas} replicas already")
    else:
        click.echo(f"{job} scaled from {'?' if before is None else before} to {replicas} replicas")
