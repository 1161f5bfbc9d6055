"""`trainyard wait`: for scripts that go on when a job has come to a certain point."""

from __future__ import annotations

from contextlib import suppress
from math import isfinite

import click

from trainyard.api.async_client import AsyncClient
from trainyard.api.commands import Where, ask, together
from trainyard.api.job_queries import Goal, Result, parse_goal
from trainyard.cli.failure_card_text import print_failure
from trainyard.cli.job_options import job_command, jobs_argument, with_where
from trainyard.schema import duration
from trainyard.schema.errors import InvalidDuration


def _seconds(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """Seconds as a number, or a time as `run --timeout` takes it."""
    if text is None:
        return None
    with suppress(ValueError):
        if isfinite(number := float(text)) and number >= 0:
            return number
    try:
        return duration.parse(text).total_seconds()
    except InvalidDuration as error:
        raise click.BadParameter(str(error)) from error


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
    metavar="TIME",
    callback=_seconds,
    help="Give up after 90 (seconds), 30m, 1d12h; 0 looks once. Without it, wait for ever.",
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
