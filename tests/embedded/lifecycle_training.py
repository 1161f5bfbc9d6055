"""A training script for the lifecycle tests: a checkpoint in a volume after every step.

Run as `python -c SCRIPT FOLDER STEPS [HELD]`. Each step all-reduces ones over the ranks and adds
the sum to the model, so that at the end the model is steps times ranks exactly, if no step was
lost, done twice or done with ranks missing. In FOLDER: `starts` (one line per start of a rank: rank
and world size), `checkpoint.json` (step, model), `result.json` at the end. No more than HELD steps
are made before there is a file `go`.
"""

from __future__ import annotations

import json

from tests.embedded.lifecycle_yard import Yard

SCRIPT = """\
import json, os, pathlib, sys, time

folder, steps, held = pathlib.Path(sys.argv[1]), *map(int, [*sys.argv[2:], "-1"][:2])
folder.mkdir(exist_ok=True)
with open(folder / "starts", "a") as file:
    file.write(os.environ["RANK"] + " " + os.environ["WORLD_SIZE"] + "\\n")

import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
assert dist.get_world_size() == int(os.environ["WORLD_SIZE"])
checkpoint = folder / "checkpoint.json"
state = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"step": 0, "model": 0}
begun = state["step"]
while state["step"] < steps:
    while state["step"] == held and not (folder / "go").exists():
        time.sleep(0.05)
    ones = torch.ones(1)
    dist.all_reduce(ones)
    state = {"step": state["step"] + 1, "model": state["model"] + int(ones)}
    if rank == 0:
        draft = checkpoint.with_suffix(".new")
        draft.write_text(json.dumps(state))
        draft.rename(checkpoint)
    dist.barrier()
    time.sleep(0.05)
if rank == 0:
    (folder / "result.json").write_text(json.dumps({**state, "begun": begun}))
print("trained", state, flush=True)
dist.destroy_process_group()
"""

STEPS = 30
HELD = 20


def command(name: str, steps: int = STEPS) -> list[str]:
    """The container's command; what makes as many as STEPS is held at HELD (see `let_go`)."""
    return ["python", "-c", SCRIPT, *_words(name, steps)]


def arguments(yard: Yard, name: str, steps: int = STEPS) -> list[str]:
    """The same for torchrun: script and its arguments."""
    yard.file("train.py").write_text(SCRIPT)
    return ["/data/train.py", *_words(name, steps)]


def _words(name: str, steps: int) -> list[str]:
    return [f"/data/{name}", str(steps), *([str(HELD)] if steps == STEPS else [])]


def let_go(yard: Yard, name: str) -> None:
    """Let the training go on to its end."""
    yard.file(name, "go").touch()


def step(yard: Yard, name: str) -> int:
    """The step of the last checkpoint."""
    try:
        return int(json.loads(yard.file(name, "checkpoint.json").read_text())["step"])
    except OSError:
        return 0


def check_result(
    yard: Yard, name: str, ranks: int, *, begun_after: int, steps: int = STEPS
) -> None:
    """The training went to its end, from a checkpoint, and no step was lost or done twice."""
    result = json.loads(yard.file(name, "result.json").read_text())
    assert (result["step"], result["model"]) == (steps, steps * ranks), result
    assert begun_after <= result["begun"] < steps, result


def starts(yard: Yard, name: str) -> list[tuple[int, int]]:
    """Rank and world size of every start of a rank."""
    lines = (line.split() for line in yard.lines(name, "starts"))
    return [(int(rank), int(world)) for rank, world in lines]
