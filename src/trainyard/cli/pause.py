"""`trainyard pause`: keep a job and free what it holds. `resume` is its counterpart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from trainyard.cli import completion
from trainyard.cli.target import job_help, on_target
from trainyard.client.changes import set_paused
from trainyard.client.jobs import find
from trainyard.client.target import Target, Where


@click.command(
    help="Pause jobs: their pods end gracefully, the jobs stay.\n\n"
    f"`trainyard resume` starts them again, at no cost of restarts.\n\n{job_help()}"
)
@on_target
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=completion.jobs)
def command(where: Where, jobs: tuple[str, ...]) -> None:
    """Pause jobs."""
    where.run(partial(pause, names=jobs, paused=True))


async def pause(target: Target, *, names: Sequence[str], paused: bool) -> None:
    """Switch the pause mode of jobs on or off."""
    for name in names:
        job = await find(target, name)
        if await set_paused(target.client, job, paused=paused):
            click.echo(f"{job} {'paused' if paused else 'resumed'}")
        else:
            click.echo(f"{job} is {'already' if paused else 'not'} paused")
