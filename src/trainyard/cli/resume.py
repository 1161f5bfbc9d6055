"""`trainyard resume`: go on with a paused job."""

from __future__ import annotations

from functools import partial

import click

from trainyard.cli import completion
from trainyard.cli.pause import pause
from trainyard.cli.target import job_help, on_target
from trainyard.client.target import Where


@click.command(help="Resume paused jobs; their `resumeSpecs` apply from then on.\n\n" + job_help())
@on_target
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=completion.jobs)
def command(where: Where, jobs: tuple[str, ...]) -> None:
    """Resume paused jobs."""
    where.run(partial(pause, names=jobs, paused=False))
