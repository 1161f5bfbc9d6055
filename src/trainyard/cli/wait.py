"""`trainyard wait`: for scripts that go on when a job has come to a certain point."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from trainyard.cli import completion
from trainyard.cli.target import job_help, on_target
from trainyard.client.jobs import together
from trainyard.client.target import Target, Where
from trainyard.client.waiting import Goal, Result, parse_goal, wait_for


@click.command(
    help="Wait until jobs have ended, or have come to another point.\n\n"
    "Exit code: 0 when all have come there; 1 when one has not and cannot any more (it failed, "
    "ended otherwise or was deleted); 3 when the time is over. Waiting for the end counts as "
    f"reached only when the job succeeded.\n\n{job_help()}"
)
@on_target
@click.option(
    "--for",
    "goal",
    default="end",
    metavar="GOAL",
    show_default=True,
    help="end, delete, phase=PHASE, condition=TYPE or condition=TYPE=STATUS.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Give up after so long; 0 looks once. Without it, wait for ever.",
)
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=completion.jobs)
def command(where: Where, jobs: tuple[str, ...], goal: str, timeout: float | None) -> int:
    """Wait until jobs have come to a certain point."""
    wanted = parse_goal(goal)
    return where.run(partial(_wait_for_all, names=jobs, goal=wanted, seconds=timeout))


async def _wait_for_all(
    target: Target, *, names: Sequence[str], goal: Goal, seconds: float | None
) -> int:
    results = await together([_wait(target, name, goal, seconds) for name in names])
    return Result.MISSED if Result.MISSED in results else max(results)


async def _wait(target: Target, name: str, goal: Goal, seconds: float | None) -> Result:
    result, text = await wait_for(target, name, goal, seconds)
    click.echo(text, err=result is not Result.REACHED)
    return result
