"""`trainyard pause`: keep a job and free what it holds. `resume` is its counterpart."""

from __future__ import annotations

from collections.abc import Sequence

import click

from trainyard.cli.target import job_command, jobs_argument, on_target
from trainyard.client.changes import set_paused
from trainyard.client.jobs import find
from trainyard.client.target import Target


@job_command
@on_target
@jobs_argument
async def command(target: Target, jobs: Sequence[str]) -> None:
    """Pause jobs: their pods end gracefully, the jobs stay.

    `trainyard resume` starts them again, at no cost of restarts.
    """
    await switch(target, jobs, paused=True)


async def switch(target: Target, names: Sequence[str], *, paused: bool) -> None:
    """Switch the pause mode of jobs on or off."""
    for name in names:
        job = await find(target, name)
        if await set_paused(target.client, job, paused=paused):
            click.echo(f"{job} {'paused' if paused else 'resumed'}")
        else:
            click.echo(f"{job} is {'already' if paused else 'not'} paused")
