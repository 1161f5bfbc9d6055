"""Restarts that jobs get back as they get on (`backoffReset: OnProgress`), and what hangs come to:
what is drawn of them, and what must hold.

By their own reading of the documented fields, as everything here.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

from tests.simulation.server import Obj
from tests.simulation.truth import JobTruth

HANG_SECONDS = 20
"""After so long ranks that get nowhere hang."""
HUNG = "runPolicy.hang restarts after this failure"
_BLAMED = re.compile(r"Pod\[(.+?)\]")


def draw(seed: int, jobs: Sequence[Obj], *, once: bool) -> None:
    """What follows from a hang; and some jobs get restarts back. `once`: as it was before some
    hangs restarted their jobs."""
    rng = random.Random(f"{seed} budgets")
    for job in jobs:
        policy = job["spec"].setdefault("runPolicy", {})
        action = "Fail" if seed % 4 == 0 else "Explain"
        if not once:
            action = "Restart" if rng.random() < 0.4 else action
            if rng.random() < 0.4:
                policy["backoffReset"] = "OnProgress"
        policy["hang"] = {"afterSeconds": HANG_SECONDS, "action": action}


def hung(texts: Sequence[str]) -> list[str]:
    """The pods that are restarted for a hang, by what is told of restarts."""
    found = (_BLAMED.match(text) for text in texts if HUNG in text)
    return [each[1] for each in found if each is not None]


def refills(job: Obj) -> bool:
    """Whether getting on gives restarts back."""
    return bool((job["spec"].get("runPolicy") or {}).get("backoffReset") == "OnProgress")


def misspent(truth: JobTruth, old: Obj, new: Obj, job: Obj) -> Iterator[str]:
    """What is wrong about the restarts that are counted in a status that follows another."""
    before, after = (status.get("backoffCount") or 0 for status in (old, new))
    at = _reached(new)
    if after < before:
        if not refills(job):
            yield "backoffCount fell"
        elif not _is_beyond(at, truth.reached):
            yield f"restarts are given back at {at}, and were counted at {truth.reached}"
    if after > before or 0 < after < before:
        truth.reached = at


def _reached(status: Obj) -> tuple[int, int]:
    """The steps of the last checkpoint and of all, -1 where none is told."""
    told = status.get("progress") or {}
    return (told.get("checkpoint") or {}).get("step", -1), told.get("step", -1)


def _is_beyond(now: tuple[int, int], before: tuple[int, int]) -> bool:
    """By checkpoints, where there is one: what is not saved is done again."""
    return now[0] > before[0] if now[0] >= 0 else now[1] > before[1]
