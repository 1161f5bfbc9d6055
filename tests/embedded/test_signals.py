"""Every rank is asked to end (SIGTERM) once, and its pod leaves when it has ended.

Each test launches jobs of several forms side by side, ends them in one way, and prints how long it
took. TRAINYARD_SOAK=1 tries all forms on 1 and 3 workers, ended in every way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.embedded.asked_ranks import Asked, Form, colossalai, deepspeed, generic, pytorch
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
ENDED_IN_EVERY_RUN = [
    ("pause", "deepspeed", 3),
    ("delete", "by-hand", 2),
    ("delete", "colossalai", 1),
]
ALL = [(how, form, workers) for how in ("pause", "delete") for form in FORMS for workers in (1, 3)]


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    require_programs("deepspeed", "colossalai", "torchrun", "pdsh", "sshd", "ssh")
    async with running_jobs(tmp_path) as jobs:
        yield Asked(jobs)


def tell(name: str, what: object) -> None:
    """For the table of the soak run."""
    print(f"{name}: {what}")


async def test_pause_and_delete_ask_every_rank_once(asked: Asked) -> None:
    for how, which, workers in ALL if soak(0, 1) else ENDED_IN_EVERY_RUN:
        name = f"{which}-{workers}-{how}"
        form = FORMS[which](name, workers)
        await asked.launch(form, name)
        tell(name, await (asked.pause if how == "pause" else asked.delete)(form, name))
        assert not (asked.jobs.folder / f"went-on-{name}").exists()
