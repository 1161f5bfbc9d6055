"""DeepSpeedJobs for tests, and what their scripts print."""

from __future__ import annotations

import json
from typing import Any

from tests.embedded.launching import Jobs, Object

KIND = "DeepSpeedJob"
TRICKY = 'it\'s "quoted" 100%h $HOME `date` \\ \n and a second line '
SHOW = """\
import json, os, socket, sys
names = ("LITERAL", "TRICKY", "FROM_SECRET", "FROM_ENV_FROM", "RANK", "WORLD_SIZE", "LOCAL_RANK")
print("SHOW " + json.dumps({
    "argv": sys.argv[1:], "host": socket.gethostname(), **{n: os.environ.get(n) for n in names},
}) + " END", flush=True)
"""
"""Prints what one rank sees."""

MEET = """\
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
"""
"""Ends when all ranks have met."""

TRAIN = """\
import os, pathlib, sys, time
import torch, torch.distributed as dist
goal, here = int(sys.argv[-1]), pathlib.Path.cwd()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
saved = here / "checkpoint"
step = torch.tensor(int(saved.read_text()) if saved.exists() else 0)
dist.broadcast(step, 0)
with (here / "launches").open("a") as launches:
    if rank == 0:
        print(world, int(step), file=launches)
while step < goal:
    step += 1
    dist.broadcast(step, 0)
    if rank == 0:
        saved.with_suffix(".new").write_text(str(int(step)))
        saved.with_suffix(".new").replace(saved)
    time.sleep(0.05)
    if (here / f"stop-{rank}").exists():
        (here / f"stop-{rank}").unlink()
        os.kill(os.getpid(), 9)
dist.barrier()
dist.destroy_process_group()
"""
"""Counts to its last argument, with a checkpoint at each step and a line for each launch."""


def worker(**changes: Any) -> Object:
    """The pod template of a worker; `changes` go into its container."""
    return {"spec": {"containers": [{"name": "worker", "image": "image", **changes}]}}


def spec(
    run: Object | None = None,
    *,
    replicas: int = 2,
    slots: int = 1,
    template: Object | None = None,
    config: Object | None = None,
    **changes: Any,
) -> Object:
    """A DeepSpeedJob's spec; `config` adds to the config and `changes` to the spec."""
    policy = changes.pop("restart_policy", "Never")
    given = {"replicas": replicas, "restartPolicy": policy, "template": template or worker()}
    settings = {"slotsPerWorker": slots, **({"run": run} if run else {}), **(config or {})}
    return {"config": settings, "worker": given, **changes}


async def shown(jobs: Jobs) -> list[Object]:
    """What the ranks of `SHOW` printed, by rank."""
    text = "".join((await jobs.logs()).split("\n"))
    decoder = json.JSONDecoder()
    found = [decoder.raw_decode(part)[0] for part in text.split("SHOW ")[1:] if " END" in part]
    return sorted(found, key=lambda rank: int(rank["RANK"]))


def launches(jobs: Jobs) -> list[tuple[int, int]]:
    """World size and first step of every launch of `TRAIN`."""
    path = jobs.folder / "launches"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(world), int(step)) for world, step in map(str.split, lines)]
