"""Every rank is asked to end (SIGTERM) once, and its pod leaves when it has ended.

Each test launches jobs of several forms side by side, ends them in one way, and prints how long it
took. TRAINYARD_SOAK=1 tries all forms on 1 and 3 workers, ended in every way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.embedded.asked_ranks import (
    Asked,
    Form,
    colossalai,
    deepspeed,
    generic,
    limited,
    pytorch,
)
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
RESIZED: dict[str, tuple[Callable[[str, int], Form], set[str]]] = {
    "torchrun-elastic": (FORMS["torchrun-elastic"], {"worker-2"}),
    "deepspeed-elastic": (FORMS["deepspeed-elastic"], {"worker-0", "worker-2"}),
    "deepspeed-custom": (
        lambda name, workers: deepspeed(
            name, workers, command=DEEPSPEED.format(name=name), elastic=True
        ),
        {"worker-0", "worker-2"},
    ),
    "by-hand": (
        lambda name, workers: deepspeed(
            name, workers, command=BY_HAND.format(name=name), ranks_each=1, elastic=True
        ),
        {"worker-0", "worker-2"},
    ),
}
"""With whose pods go when one of three workers is taken away: worker-0 launches anew."""
NOT_RESIZED = {
    "plain": "an elastic PyTorchTrainingJob needs torchrun",
    "torchrun": "as torchrun-elastic",
    "deepspeed": "as deepspeed-elastic",
    "colossalai": "a ColossalAIJob cannot be elastic",
    "generic": "a GenericJob cannot be elastic",
}
WITHOUT_DEADLINE = {
    "colossalai": "a ColossalAIJob has no activeDeadlineSeconds",
    "generic": "a GenericJob has none either",
}
EVERY_RUN = [
    ("pause", "deepspeed", 3),
    ("delete", "by-hand", 2),
    ("delete", "colossalai", 1),
]
DEADLINE_SECONDS = 240
SOAK = [
    *(
        ("deadline", form, workers)
        for form in FORMS
        if form not in WITHOUT_DEADLINE
        for workers in (1, 3)
    ),
    *((how, form, workers) for how in ("pause", "delete") for form in FORMS for workers in (1, 3)),
    *(("resize", form, workers) for form in RESIZED for workers in (1, 3)),
]


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    require_programs("deepspeed", "colossalai", "torchrun", "pdsh", "sshd", "ssh")
    async with running_jobs(tmp_path) as jobs:
        yield Asked(jobs)


async def play(asked: Asked, how: str, which: str, workers: int, turn: asyncio.Lock) -> None:
    """Launch one job, end it, and print how that went.

    One after the other, but that those which wait for their deadlines do so side by side.
    """
    name = f"{which}-{workers}-{how}"
    make, leave = RESIZED[which] if how == "resize" else (FORMS[which], set())
    form = make(name, workers)
    if how == "deadline":
        form = limited(form, DEADLINE_SECONDS)
        async with turn:
            await asked.launch(form, name)
        ending = await asked.expire(form, name)
    else:
        async with turn:
            await asked.launch(form, name)
            if how == "pause":
                ending = await asked.pause(form, name)
            elif how == "delete":
                ending = await asked.delete(form, name)
            elif workers == 1:
                ending = await asked.grow(form, name)
            else:
                ending = await asked.shrink(form, name, leave)
    print(f"{name}: {ending}", flush=True)
    assert not (asked.jobs.folder / f"went-on-{name}").exists()
    if how != "delete":
        await asked.forget(form, name)


async def test_every_rank_is_asked_once_and_pods_leave_with_their_ranks(asked: Asked) -> None:
    """Prints the times, which are no part of the verdict."""
    assert FORMS.keys() == RESIZED.keys() | NOT_RESIZED.keys()
    turn = asyncio.Lock()
    async with asyncio.TaskGroup() as tasks:
        for how, which, workers in SOAK if soak(0, 1) else EVERY_RUN:
            tasks.create_task(play(asked, how, which, workers, turn))
