"""Every rank is asked to end (SIGTERM) once, and its pod leaves when it has ended.

Each test launches jobs of several forms side by side, ends them in one way, and prints how long it
took. TRAINYARD_SOAK=1 tries all forms on 1 and 3 workers, ended in every way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.embedded.asked_ranks import Asked, Form, colossalai, deepspeed, generic, limited, pytorch
from tests.embedded.launching import require_programs, running_jobs
from tests.tools import soak

DEEPSPEED = "deepspeed --hostfile $TRAINYARD_HOSTFILE rank.py {name}"
BY_HAND = """\
for host in $(cut -d' ' -f1 $TRAINYARD_HOSTFILE); do
    ssh $host "cd $PWD && exec python3 rank.py helper {name}" 2>&1 | tee log-$host &
done
wait
wait
touch went-on-{name}
"""
"""A shell that leaves signals to others, pipes, and something that comes after the training."""
FORMS: dict[str, Callable[[str, int], Form]] = {
    "plain": lambda name, workers: pytorch(name, workers, torchrun=False),
    "torchrun": lambda name, workers: pytorch(name, workers, torchrun=True),
    "torchrun-elastic": lambda name, workers: pytorch(name, workers, torchrun=True, elastic=True),
    "deepspeed": deepspeed,
    "deepspeed-elastic": lambda name, workers: deepspeed(name, workers, elastic=True),
    "deepspeed-custom": lambda name, workers: deepspeed(
        name, workers, command=DEEPSPEED.format(name=name)
    ),
    "by-hand": lambda name, workers: deepspeed(
        name, workers, command=BY_HAND.format(name=name), ranks_each=1
    ),
    "colossalai": colossalai,
    "generic": lambda name, workers: generic(name, workers, "python3", "rank.py", name),
}
EVERY_RUN = [
    ("pause", "deepspeed", 3),
    ("delete", "by-hand", 2),
    ("delete", "colossalai", 1),
]
ELASTIC = ("deepspeed-elastic", "torchrun-elastic")
DEADLINE_SECONDS = 60
SOAK = [
    *((how, form, workers) for how in ("pause", "delete") for form in FORMS for workers in (1, 3)),
    *(("resize", form, 3) for form in ELASTIC),
    *(
        ("deadline", form, workers)
        for form in ("plain", "torchrun", "deepspeed", "by-hand")
        for workers in (1, 3)
    ),
]
LEAVE = {"deepspeed-elastic": {"worker-0", "worker-2"}, "torchrun-elastic": {"worker-2"}}
"""Whose pods go when one of three workers is taken away."""


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    require_programs("deepspeed", "colossalai", "torchrun", "pdsh", "sshd", "ssh")
    async with running_jobs(tmp_path) as jobs:
        yield Asked(jobs)


async def test_every_rank_is_asked_once_and_pods_leave_with_their_ranks(asked: Asked) -> None:
    """Prints the times, which are no part of the verdict."""
    for how, which, workers in SOAK if soak(0, 1) else EVERY_RUN:
        name = f"{which}-{workers}-{how}"
        form = FORMS[which](name, workers)
        if how == "deadline":
            form = limited(form, DEADLINE_SECONDS)
        await asked.launch(form, name)
        if how == "pause":
            ending = await asked.pause(form, name)
        elif how == "delete":
            ending = await asked.delete(form, name)
        elif how == "resize":
            ending = await asked.shrink(form, name, LEAVE[which])
        else:
            ending = await asked.expire(form, name)
        print(f"{name}: {ending}")
        assert not (asked.jobs.folder / f"went-on-{name}").exists()
        if how != "delete":
            await asked.forget(form, name)
