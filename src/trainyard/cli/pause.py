"""`trainyard pause`: keep a job and free what it holds. `resume` is its counterpart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from trainyard.cli import completion
from trainyard.cli.target import on_target
from trainyard.client.jobs import JOB_HELP, Found, find
from trainyard.client.target import CommandError, Target, Where


@click.command(
    help="Pause jobs: their pods end gracefully, the jobs stay.\n\n"
    f"`trainyard resume` starts them again, at no cost of restarts.\n\n{JOB_HELP}"
)
@on_target
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=completion.jobs)
def command(where: Where, jobs: tuple[str, ...]) -> None:
    """Pause jobs."""
    where.run(partial(set_paused, names=jobs, paused=True))


async def set_paused(target: Target, *, names: Sequence[str], paused: bool) -> None:
    """Switch the pause mode of jobs on or off."""
    for name in names:
        job = await find(target, name)
        if job.is_over:
            word = "paused" if paused else "resumed"
            raise CommandError(
                f"{job} cannot be {word}: it has ended ({job.phase}); create it anew to run it"
            )
        if is_paused(job) == paused:
            click.echo(f"{job} is {'already' if paused else 'not'} paused")
            continue
        await target.client.patch(job.resource, job.name, pause_patch(job, paused), job.namespace)
        click.echo(f"{job} {'paused' if paused else 'resumed'}")


def is_paused(job: Found) -> bool:
    """Whether the job is to be paused, in whichever spelling it was stored."""
    mode = _pause_mode(job)
    return bool(mode.get("enabled", mode.get("enable")))


def pause_patch(job: Found, paused: bool) -> dict[str, Any]:
    """A merge patch; of a job stored in the old spelling (`enable`) it removes that key."""
    values: dict[str, Any] = {"enabled": paused}
    if "enable" in _pause_mode(job):
        values["enable"] = None
    # The resourceVersion is left out on purpose: the controller writes status all the time.
    return {"spec": {"runMode": {"pause": values}}}


def _pause_mode(job: Found) -> dict[str, Any]:
    spec = job.obj.get("spec") or {}
    return (spec.get("runMode") or {}).get("pause") or {}
