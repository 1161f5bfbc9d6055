"""`trainyard wait`: for scripts that go on when a job has come to a certain point."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import click

from trainyard.cli import completion
from trainyard.cli.target import on_target
from trainyard.client.jobs import JOB_HELP, Found, JobNotFound, find, follow, together
from trainyard.client.target import CommandError, Target, Where
from trainyard.kinds.shared.reasons import ConditionType, Phase

REACHED, FAILED, TIMED_OUT = 0, 1, 3


@dataclass(frozen=True, slots=True)
class Goal:
    """What to wait for. A job that has ended without `is_reached` never reaches it."""

    text: str
    is_reached: Callable[[Found], bool]
    is_deletion: bool = False


@click.command(
    help="Wait until jobs have ended, or have come to another point.\n\n"
    "Exit code: 0 when all have come there; 1 when one has not and cannot any more (it failed, "
    "ended otherwise or was deleted); 3 when the time is over. Waiting for the end counts as "
    f"reached only when the job succeeded.\n\n{JOB_HELP}"
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


def parse_goal(text: str) -> Goal:
    """What `--for` means; names are matched whatever their case."""
    kind, _, rest = text.partition("=")
    match kind.lower():
        case "end" if not rest:
            return Goal("to end", lambda job: job.phase == Phase.SUCCEEDED)
        case "delete" if not rest:
            return Goal("to be deleted", lambda _: False, is_deletion=True)
        case "phase" if rest:
            phase = _one_of(rest, [str(phase) for phase in Phase], "phase")
            return Goal(f"for phase {phase}", lambda job: job.phase == phase)
        case "condition" if rest:
            name, _, status = rest.partition("=")
            name = _one_of(name, [str(kind) for kind in ConditionType], "condition")
            status = _one_of(status or "True", ["True", "False", "Unknown"], "status")
            return Goal(f"for condition {name}={status}", partial(_holds, name, status))
    raise CommandError(
        f"cannot wait for {text!r}; write end, delete, phase=Running or condition=Completed"
    )


def _one_of(text: str, known: list[str], what: str) -> str:
    for name in known:
        if name.lower() == text.lower():
            return name
    raise CommandError(f"there is no {what} {text!r}; it is one of {', '.join(known)}")


def _holds(name: str, status: str, job: Found) -> bool:
    return any(
        condition["type"] == name and condition["status"] == status
        for condition in job.status.get("conditions") or ()
    )


async def _wait_for_all(
    target: Target, *, names: Sequence[str], goal: Goal, seconds: float | None
) -> int:
    codes = await together([_wait(target, name=n, goal=goal, seconds=seconds) for n in names])
    return FAILED if FAILED in codes else max(codes)


async def _wait(target: Target, *, name: str, goal: Goal, seconds: float | None) -> int:
    try:
        job = await find(target, name)
    except JobNotFound as error:
        if not goal.is_deletion:
            raise
        click.echo(str(error))
        return REACHED
    if (code := _judge(job, goal)) is not None:
        return code
    try:
        async with asyncio.timeout(seconds):
            return await _until(target, job, goal)
    except TimeoutError:
        click.echo(f"{job}: gave up after {seconds:g} s of waiting {goal.text}", err=True)
        return TIMED_OUT


async def _until(target: Target, job: Found, goal: Goal) -> int:
    states = follow(target.client, job)
    async with contextlib.aclosing(states):
        async for state in states:
            if state is None:
                click.echo(f"{job} was deleted", err=not goal.is_deletion)
                return REACHED if goal.is_deletion else FAILED
            if (code := _judge(state, goal)) is not None:
                return code
    return FAILED


def _judge(job: Found, goal: Goal) -> int | None:
    """The exit code for a job that has come to the goal, or never will; None while it may."""
    if goal.is_reached(job):
        click.echo(f"{job}: {job.phase}")
        return REACHED
    if job.is_over and not goal.is_deletion:
        click.echo(_told(job), err=True)
        return FAILED
    return None


def _told(job: Found) -> str:
    """How the job ended, with the reason where it failed."""
    for condition in job.status.get("conditions") or ():
        if condition["type"] == ConditionType.FAILED and condition["status"] == "True":
            return f"{job}: Failed: {condition.get('message') or condition.get('reason')}"
    return f"{job}: {job.phase}"
