"""Restarts that jobs get back as they get on (`backoffReset: OnProgress`), and what hangs come to:
what is drawn of them, and what must hold.

By their own reading of the documented fields, as everything here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from tests.simulation.reconcile_result import ReconcileResult
from tests.simulation.server import Obj
from tests.simulation.truth import JobTruth

HANG_SECONDS = 20
"""After so long ranks that get nowhere hang."""
HUNG = "runPolicy.hang restarts after this failure"


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


def hung(result: ReconcileResult) -> list[tuple[str, int]]:
    """The pod, by name and attempt, that runs and is to be restarted for a hang: one for each.

    Not by the text of the restart, which is that of another replica where one failed meanwhile.
    """
    policy = (result.spec.get("runPolicy") or {}).get("hang") or {}
    is_hung = any(
        c["type"] == "Hung" and c["status"] == "True" for c in result.after.get("conditions") or ()
    )
    if not is_hung or policy.get("action") != "Restart":
        return []
    wanted = result.account(result.after).get("replicas") or {}
    ranks = [
        result.pods[rank.pod] for rank in result.observed.reports.ranks if rank.pod in result.pods
    ]
    blamed = [p for p in ranks if p.attempt < (wanted.get(p.name) or {}).get("attempt", 0)]
    return [(p.name, p.attempt) for p in blamed if p.phase == "Running"][:1]


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
    # In one pass they may be given back and counted anew: the count stays what it was.
    if after > before or 0 < after < before or (after and _restarts(new) > _restarts(old)):
        truth.reached = at


def _restarts(status: Obj) -> int:
    """All that were ever counted."""
    return sum(task.get("restartCount") or 0 for task in status.get("tasks") or ())


def _reached(status: Obj) -> tuple[int, int]:
    """The steps of the last checkpoint and of all, -1 where none is told."""
    result = status.get("progress") or {}
    return (result.get("checkpoint") or {}).get("step", -1), result.get("step", -1)


def _is_beyond(now: tuple[int, int], before: tuple[int, int]) -> bool:
    """By checkpoints, where there is one: what is not saved is done again."""
    return now[0] > before[0] if now[0] >= 0 else now[1] > before[1]
