"""`trainyard wait`: for scripts that go on when a job has come to a certain point."""

from __future__ import annotations

import click

from trainyard.api.async_client import AsyncClient
from trainyard.api.commands import Where, ask, together
from trainyard.api.job_queries import Goal, Result, parse_goal
from trainyard.cli.failure_card_text import print_failure
from trainyard.cli.job_options import job_command, jobs_argument, with_where


@job_command
@with_where
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
@jobs_argument
def command(where: Where, jobs: tuple[str, ...], goal: str, timeout: float | None) -> int:
    """Wait until jobs have ended, or have come to another point.

    Exit code: 0 when all have come there; 1 when one has not and cannot any more (it failed,
    ended otherwise or was deleted); 3 when the time is over. Waiting for the end counts as
    reached only when the job succeeded.
    """
    wanted = parse_goal(goal)

    async def wait_for_all(client: AsyncClient) -> int:
        results = await together([_wait(client, name, wanted, timeout) for name in jobs])
        return Result.MISSED if Result.MISSED in results else max(results)

    return ask(where, wait_for_all)


async def _wait(client: AsyncClient, name: str, goal: Goal, seconds: float | None) -> Result:
    outcome = await client.outcome(name, goal, timeout=seconds)
    if outcome.result is not Result.MISSED or not await print_failure(client, name):
        click.echo(outcome.text, err=outcome.result is not Result.REACHED)
    return outcome.result
