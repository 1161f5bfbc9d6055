"""Elastic DeepSpeedJob with the real deepspeed: sizes change, training goes on from checkpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.deepspeed_job import KIND, TRAIN, launches, spec, worker
from tests.embedded.launching import (
    NAMESPACE,
    Jobs,
    Object,
    require_programs,
    resource_of,
    running_jobs,
)

STEPS = "1000000"
"""More than a test waits for; a script that reads its goal from a file ends when it is told to."""


@pytest.fixture
async def jobs(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Jobs]:
    require_programs("deepspeed", "pdsh", "sshd", "ssh")
    settings: dict[str, Any] = getattr(request, "param", {})
    async with running_jobs(tmp_path, **settings) as running:
        running.script("train.py", TRAIN.replace("while step < goal:", UNTIL_TOLD))
        yield running


UNTIL_TOLD = """\
end = torch.zeros(1)
while not end.item():
    end[0] = float(rank == 0 and (here / "enough").exists())
    dist.broadcast(end, 0)"""


def elastic(expected: int, *, container: Object | None = None) -> Object:
    """A job of one to three workers."""
    bounds = {"enabled": True, "minReplicas": 1, "maxReplicas": 3, "expectedReplicas": expected}
    template = worker(**(container or {}))
    return spec({"python": ["train.py", STEPS]}, replicas=1, template=template, elastic=bounds)


def sizes(jobs: Jobs) -> list[int]:
    """World sizes of all launches so far."""
    return [world for world, _ in launches(jobs)]


async def until_launched_with(jobs: Jobs, size: int) -> None:
    """Wait for a launch of this many ranks."""
    await jobs.until(KIND, "dj", lambda _: sizes(jobs)[-1:] == [size])


async def resize(jobs: Jobs, expected: int) -> None:
    """Ask for another number of workers."""
    body = {"spec": {"elastic": {"expectedReplicas": expected}}}
    await jobs.client.patch(resource_of(KIND), "dj", body, NAMESPACE)


async def test_sizes_follow_the_wish_and_training_goes_on(jobs: Jobs) -> None:
    """1, then 3, then 2 workers, each from the last checkpoint, and nothing is counted."""
    await jobs.submit(KIND, "dj", elastic(1))
    for size in (1, 3, 2):
        if size != 1:
            await resize(jobs, size)
        await until_launched_with(jobs, size)
    (jobs.folder / "enough").touch()
    status = await jobs.succeed(KIND, "dj")
    assert status["backoffCount"] == 0
    steps = [step for _, step in launches(jobs)]
    assert steps == sorted(steps)
    assert steps[-1] > 0


@pytest.mark.parametrize("jobs", [{"resources": {"example.com/slot": 2}}], indirect=True)
async def test_a_machine_that_holds_two_of_three_starts_with_two(jobs: Jobs) -> None:
    """The third worker stays pending, for want of a device, and does not hold the others up."""
    resources = {"limits": {"example.com/slot": 1}}
    await jobs.submit(KIND, "dj", elastic(3, container={"resources": resources}))
    await jobs.until(KIND, "dj", lambda _: sizes(jobs) == [2])
    (jobs.folder / "enough").touch()
    await jobs.succeed(KIND, "dj")
    assert sizes(jobs) == [2]
