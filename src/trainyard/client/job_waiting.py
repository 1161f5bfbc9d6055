"""Waiting until a job has come to a certain point."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

from trainyard.client.cluster_target import ClusterTarget, CommandError
from trainyard.client.job_lookup import JobNotFound, find
from trainyard.client.job_view import Job
from trainyard.client.object_watcher import follow
from trainyard.kinds.shared.reasons import ConditionType, Phase
from trainyard.kube.client import Client
from trainyard.schema.dataclass import dataclass


class Result(IntEnum):
    """How a wait ended; the numbers are the command's exit codes."""

    REACHED = 0
    MISSED = 1
    """It cannot be reached any more."""
    TIMED_OUT = 3


class Outcome(NamedTuple):
    """How a wait ended, in a number and in words, and the job as it was then."""

    result: Result
    text: str
    job: Job | None = None
    """None for a job that does not exist, where its deletion was waited for."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What to wait for. A job that has ended without `is_reached` never reaches it."""

    text: str
    is_reached: Callable[[Job], bool]
    is_deletion: bool = False


def parse_goal(text: str) -> Goal:
    """`end`, `delete`, `phase=…` or `condition=…`; names are matched whatever their case."""
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
            return Goal(
                f"for condition {name}={status}",
                lambda job: job.condition(name).get("status") == status,
            )
    raise CommandError(
        f"cannot wait for {text!r}; write end, delete, phase=Running or condition=Completed"
    )


def _one_of(text: str, known: list[str], what: str) -> str:
    for name in known:
        if name.lower() == text.lower():
            return name
    raise CommandError(f"there is no {what} {text!r}; it is one of {', '.join(known)}")


async def wait_for(
    target: ClusterTarget, name: str, goal: Goal, seconds: float | None = None
) -> Outcome:
    """Until the job has come to the goal, or never will, or `seconds` are over."""
    try:
        job = await find(target, name)
    except JobNotFound as error:
        if not goal.is_deletion:
            raise
        return Outcome(Result.REACHED, str(error))
    return await wait(target.client, job, goal, seconds)


async def wait(client: Client, job: Job, goal: Goal, seconds: float | None = None) -> Outcome:
    """The same for a job that is known; one of its name that comes after it is another."""
    if (outcome := _judge(job, goal)) is not None:
        return outcome
    try:
        async with asyncio.timeout(seconds):
            return await _until(client, job, goal)
    except TimeoutError:
        text = f"{job}: gave up after {seconds:g} s of waiting {goal.text}"
        return Outcome(Result.TIMED_OUT, text, job)


async def _until(client: Client, job: Job, goal: Goal) -> Outcome:
    async with contextlib.aclosing(follow(client, job)) as states:
        async for state in states:
            if state is None:
                break
            job = state
            if (outcome := _judge(state, goal)) is not None:
                return outcome
    job.is_deleted = True
    result = Result.REACHED if goal.is_deletion else Result.MISSED
    return Outcome(result, f"{job} was deleted", job)


def _judge(job: Job, goal: Goal) -> Outcome | None:
    """The outcome for a job that has come to the goal, or never will; None while it may."""
    if goal.is_reached(job):
        return Outcome(Result.REACHED, f"{job}: {job.phase}", job)
    if job.is_over and not goal.is_deletion:
        text = f"{job}: Failed: {job.failure}" if job.failure else f"{job}: {job.phase}"
        return Outcome(Result.MISSED, text, job)
    return None
