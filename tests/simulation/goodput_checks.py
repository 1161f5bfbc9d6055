"""What must hold of `status.goodput`, by the documented fields alone."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.server import Obj
from trainyard.schema.times import parse

PARTS = (
    "queued",
    "starting",
    "unknown",
    "training",
    "saving",
    "lost",
    "hung",
    "restarting",
    "paused",
)
ENDS = ("Succeeded", "Failed")
WHOLE_SECOND = 1.0
"""A creationTimestamp has no fractions."""
ROUNDING = 0.01


def misaccounted(old: Obj, new: Obj, job: Obj, *, steady: bool) -> Iterator[str]:
    """Problems of a status that follows another. `steady`: nobody has set the clock back."""
    before, after = old.get("goodput") or {}, new.get("goodput")
    if "tasks" not in new:
        return  # an invalid job
    if after is None:
        yield "goodput is not told"
        return
    total = sum(after.get(part, 0.0) for part in PARTS)
    # Training turns out to be lost, or not to have begun, or to have begun before, by its steps.
    is_new_work = old.get("internal", {}).get("work") != new["internal"].get("work")
    may_fall = ("training", "unknown", "starting", "restarting")
    may_fall = may_fall if is_new_work else may_fall[:2]
    for part in PARTS:
        if after.get(part, 0.0) < before.get(part, 0.0) and part not in may_fall:
            yield f"goodput: {part} fell from {before[part]} to {after.get(part)}"
    if total < sum(before.get(part, 0.0) for part in PARTS) - ROUNDING:
        yield f"goodput fell in sum: {before}, then {after}"
    as_of, created = parse(after["asOf"]), parse(job["metadata"]["creationTimestamp"])
    assert as_of is not None
    assert created is not None
    wall = (as_of - created).total_seconds()
    if steady and abs(total - wall) > WHOLE_SECOND + ROUNDING:
        yield f"goodput has {total} s of {wall}: {after}"
    of_attempts = sum(each.get(part, 0.0) for each in after["attempts"] for part in PARTS)
    if of_attempts > total + ROUNDING:
        yield f"goodput of attempts is {of_attempts} s of {total}"
    is_whole = 0 < len(after["attempts"]) < 10
    if is_whole and of_attempts < total - ROUNDING:
        yield f"goodput of attempts is {of_attempts} s of {total}, and none is left out"
    yield from _of_state(new, after.get("state"))


def _of_state(new: Obj, state: str | None) -> Iterator[str]:
    phase = new["phase"]
    running = {c["type"]: c["status"] for c in new["conditions"]}.get("Running") == "True"
    if (state is None) != (phase in ENDS):
        yield f"phase {phase}, time goes to {state}"
    if (state == "paused") != (phase == "Paused"):
        yield f"phase {phase}, time goes to {state}"
    if (state in ("training", "unknown", "hung")) != (running and phase not in ENDS):
        yield f"Running is {running}, time goes to {state}"
