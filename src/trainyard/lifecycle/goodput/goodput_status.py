"""Where a job's wall time goes: `status.goodput`.

Time is accounted for only in writes of the status that happen anyway. What a job does changes with
such a write, so until the next one it does what the last one said. Sums are kept for good, those of
single attempts as long as the attempts are told (decision 231).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from trainyard.kinds.shared.goodput.goodput_parts import GoodputPart
from trainyard.kinds.shared.reasons import ConditionReason, ConditionType
from trainyard.kinds.shared.workload import Scope
from trainyard.kube.object_conditions import find_condition
from trainyard.lifecycle.goodput.goodput_work import TrackedWork, update_work
from trainyard.lifecycle.internal_status import (
    EVICTED,
    HISTORY,
    PAUSED,
    InternalStatus,
    final_phase,
)
from trainyard.lifecycle.policy import NOTHING, PolicyResult
from trainyard.lifecycle.reconcile_context import ReconcileContext
from trainyard.lifecycle.status.status_builder import StatusBuilder
from trainyard.schema.times import parse, render

Obj = dict[str, Any]
_QUEUED = (
    ConditionReason.UNSCHEDULABLE,
    ConditionReason.WAITS_FOR_ADMISSION,
    ConditionReason.EVICTED,
    ConditionReason.FLAVOR_UNKNOWN,
    ConditionReason.NO_GANG_SCHEDULER,
)
_IDLE = (GoodputPart.RESTARTING, GoodputPart.STARTING, GoodputPart.UNKNOWN)
"""Of which it may turn out that a process did its first steps in it."""
_DIGITS = 3


INTERNAL_FIELDS = ("work",)
"""Steps of the last process that reported any: a TrackedWork."""


def parse_status(status: Obj) -> Obj:
    """The stored status with those attempts only that have a number."""
    goodput = status.get("goodput")
    if not goodput:
        return status
    attempts = [each for each in goodput.get("attempts") or () if "number" in each]
    return {**status, "goodput": {**goodput, "attempts": attempts}}


def account_time(context: ReconcileContext, status: StatusBuilder) -> PolicyResult:
    """Account for all time until now; nothing is added after the end."""
    if final_phase(context.before):
        return NOTHING
    new, internal = status.fields, context.internal
    # A status of an earlier version may have no account: what was before is not known then.
    created = None if context.before.get("phase") else context.workload.created
    goodput = _add_elapsed_time(new, internal, context.now, created)
    if context.workload.hang is not None and _is_hung(new) and not _is_hung(context.before):
        _count_hang_as_hung(goodput, context.workload.hang.after_seconds)
    new["goodput"] = goodput
    known = TrackedWork.decode(internal.features.get("work"))
    work = update_work(context.observed.reports.progress, known, internal.attempts)
    if goodput.get("state") == GoodputPart.UNKNOWN and _trains(context, work or known):
        goodput["state"] = GoodputPart.TRAINING.value
    if work is None:
        return NOTHING
    own = [each for each in goodput["attempts"] if each["number"] == work.attempt]
    saved, earlier = work.saving, 0.0
    if known is not None and work.run == known.run:
        saved -= known.saving
        earlier = (known.began - work.began).total_seconds()
    else:
        _correct_for_new_process(goodput, context, known, work)
    for idle in _IDLE if earlier else ():
        earlier -= _move_seconds(goodput, own, idle, GoodputPart.TRAINING, earlier)
    _move_seconds(goodput, own, GoodputPart.TRAINING, GoodputPart.SAVING, saved)
    new["internal"] = {**new["internal"], "work": work.encode()}
    return NOTHING


def _trains(context: ReconcileContext, work: TrackedWork | None) -> bool:
    """Whether the attempt that is under way has told a step."""
    if work is None:
        return False
    number = context.internal.attempts[-1]["number"] if context.internal.attempts else None
    return context.workload.scope is Scope.REPLICA or work.attempt == number


def _is_hung(status: Mapping[str, Any]) -> bool:
    return find_condition(status, ConditionType.HUNG).get("status") == "True"


def _count_hang_as_hung(goodput: Obj, seconds: float) -> None:
    """A hang is told only after it has lasted for a while, which was counted as something else."""
    for part in (GoodputPart.TRAINING, GoodputPart.UNKNOWN):
        ran = [each for each in goodput["attempts"] if each.get(part.value)]
        seconds -= _move_seconds(goodput, ran[-1:], part, GoodputPart.HUNG, seconds)


def _correct_for_new_process(
    goodput: Obj, context: ReconcileContext, known: TrackedWork | None, work: TrackedWork
) -> None:
    """Tell training from what it turns out to have been, since what does the steps has begun anew.

    With its first step it is known since when it trains, and what of the work before is done
    again. An attempt of a job of which none was told has not trained.
    """
    goodput.setdefault(GoodputPart.LOST.value, 0.0)
    since = max((context.now - work.began).total_seconds(), 0.0)
    attempts = goodput["attempts"]
    own = [each for each in attempts if each["number"] == work.attempt]
    _take_for_training(goodput, work.attempt if known is None else known.attempt)
    if known is None:
        _set_trained_seconds(goodput, own, GoodputPart.STARTING, since)
        return
    if known.attempt == work.attempt:  # a launcher has started it again in its pod
        lost = sum(map(_trained, own)) - since - known.until(work.first)
        _move_seconds(goodput, own, GoodputPart.TRAINING, GoodputPart.LOST, lost)
        return
    together = context.workload.scope is Scope.JOB
    between = [each for each in attempts if known.attempt <= each["number"] < work.attempt]
    before = [e for e in between if e["number"] == known.attempt] if together else between
    lost = sum(map(_trained, before)) - known.until(work.first)
    _move_seconds(goodput, before, GoodputPart.TRAINING, GoodputPart.LOST, lost)
    silent = [each for each in between if each not in before]
    _move_seconds(
        goodput, silent, GoodputPart.TRAINING, GoodputPart.RESTARTING, sum(map(_trained, silent))
    )
    _set_trained_seconds(goodput, own, GoodputPart.RESTARTING, since)


def _take_for_training(goodput: Obj, since: int) -> None:
    """All that ran from that attempt on, which is then told from what it has been."""
    unknown = GoodputPart.UNKNOWN
    for attempt in goodput["attempts"]:
        if attempt["number"] >= since and unknown.value in attempt:
            ran = attempt[unknown.value]
            _move_seconds(goodput, [attempt], unknown, GoodputPart.TRAINING, ran)
            del attempt[unknown.value]
    if not goodput.get(unknown.value):
        goodput.pop(unknown.value, None)


def _set_trained_seconds(goodput: Obj, own: list[Obj], idle: GoodputPart, since: float) -> None:
    """An attempt has trained for so many seconds, whatever was taken for training."""
    hung = sum(each.get(GoodputPart.HUNG.value, 0.0) for each in own)
    more = since - hung - sum(map(_trained, own))
    _move_seconds(goodput, own, idle, GoodputPart.TRAINING, more)
    _move_seconds(goodput, own, GoodputPart.TRAINING, idle, -more)


def _trained(attempt: Mapping[str, Any]) -> float:
    return sum(
        float(attempt.get(part.value, 0.0)) for part in (GoodputPart.TRAINING, GoodputPart.SAVING)
    )


def _move_seconds(
    goodput: Obj, attempts: list[Obj], one: GoodputPart, other: GoodputPart, seconds: float
) -> float:
    """Seconds of some attempts, the last first, that were taken for something else; how many of
    them there were."""
    left = seconds
    for attempt in reversed(attempts):
        moved = min(left, attempt.get(one.value, 0.0))
        if moved <= 0:
            continue
        left -= moved
        for each in (goodput, attempt):
            each[one.value] = round(max(each.get(one.value, 0.0) - moved, 0.0), _DIGITS)
            each[other.value] = round(each.get(other.value, 0.0) + moved, _DIGITS)
    return seconds - left


def _add_elapsed_time(
    status: Mapping[str, Any], internal: InternalStatus, now: datetime, created: datetime | None
) -> Obj:
    """`status` holds what the job does from now on, and the goodput that was written last."""
    known = status.get("goodput") or {}
    since = parse(known.get("asOf"))
    if since is None:
        since, known = min(created or now, now), {"state": GoodputPart.STARTING.value}
    seconds = max((now - since).total_seconds(), 0.0)
    part = str(known.get("state", ""))
    attempts = [dict(each) for each in known.get("attempts") or ()]
    number = internal.attempts[-1]["number"] if internal.attempts else None
    is_new = bool(attempts) and number not in (None, attempts[-1]["number"])
    late = 0.0
    if is_new and part in (GoodputPart.TRAINING, GoodputPart.UNKNOWN):
        late = min(max(_since_end(internal, now), 0.0), seconds)
    sums = _add_seconds(known, part, seconds - late) if part else _known_parts(known)
    if part and attempts:
        last = attempts[-1]
        attempts[-1] = {"number": last["number"], **_add_seconds(last, part, seconds - late)}
    if number is not None and not attempts:
        attempts = [{"number": number, **sums}]  # with what came before it
    if is_new:
        sums = _add_seconds(sums, GoodputPart.RESTARTING.value, late)
        attempts.append({"number": number, **_add_seconds({}, GoodputPart.RESTARTING.value, late)})
    state = _current_part(status, internal)
    return {
        **sums,
        **({"state": state.value} if state else {}),
        "asOf": render(now),
        "attempts": attempts[-HISTORY:],
    }


def _since_end(internal: InternalStatus, now: datetime) -> float:
    """Seconds since the attempt before ended, which may be learnt of late."""
    ends = (parse(each.get("endTime")) for each in internal.attempts[-2:-1])
    return max(((now - end).total_seconds() for end in ends if end is not None), default=0.0)


def _current_part(status: Mapping[str, Any], internal: InternalStatus) -> GoodputPart | None:
    """What the job spends its time on from now on, for all that is known without its steps; None
    once it has ended."""
    if internal.ended:
        return None
    if internal.paused:
        return GoodputPart.PAUSED
    running = find_condition(status, ConditionType.RUNNING)
    if internal.evicted or (running.get("status") != "True" and running.get("reason") in _QUEUED):
        return GoodputPart.QUEUED
    if running.get("status") == "True":
        return GoodputPart.HUNG if _is_hung(status) else GoodputPart.UNKNOWN
    before = internal.attempts[-2] if len(internal.attempts) > 1 else {}
    is_again = internal.ready_at or (before and before.get("reason") not in (PAUSED, EVICTED))
    return GoodputPart.RESTARTING if is_again else GoodputPart.STARTING


def _known_parts(known: Mapping[str, Any]) -> Obj:
    return {part.value: known[part.value] for part in GoodputPart if part.value in known}


def _add_seconds(known: Mapping[str, Any], part: str, seconds: float) -> Obj:
    sums = _known_parts(known)
    if seconds:
        sums[part] = round(sums.get(part, 0.0) + seconds, _DIGITS)
    return sums
