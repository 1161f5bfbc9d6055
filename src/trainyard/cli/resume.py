"""`trainyard resume`: go on with a paused job."""

from __future__ import annotations

from functools import partial

import click

from trainyard.cli import completion
from trainyard.cli.pause import set_paused
from trainyard.cli.target import on_target
from trainyard.client.jobs import JOB_HELP
from trainyard.client.target import Where


@click.command(help="Resume paused jobs; their `resumeSpecs` apply from then on.\n\n" + JOB_HELP)
@on_target
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=completion.jobs)
def command(where: Where, jobs: tuple[str, ...]) -> None:
    """Resume paused jobs."""
    where.run(partial(set_paused, names=jobs, paused=False))
