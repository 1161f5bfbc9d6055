"""Where a job's wall time goes: `status.goodput`.

Time is accounted for only in writes of the status that happen anyway. What a job does changes with
such a write, so until the next one it does what the last one said. Sums are kept for good, those of
single attempts as long as the attempts are told (decision 231).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from trainyard.kinds.shared.goodput import Part
from trainyard.kinds.shared.reasons import ConditionReason, ConditionType
from trainyard.kinds.shared.workload import Scope
from trainyard.lifecycle.gains import Reached
from trainyard.lifecycle.ledger import EVICTED, HISTORY, PAUSED, Ledger, outcome
from trainyard.lifecycle.passes import Pass
from trainyard.schema.times import parse, render

Obj = dict[str, Any]
_QUEUED = (
    ConditionReason.UNSCHEDULABLE,
    ConditionReason.WAITS_FOR_ADMISSION,
    ConditionReason.EVICTED,
    ConditionReason.FLAVOR_UNKNOWN,
    ConditionReason.NO_GANG_SCHEDULER,
)
_DIGITS = 3


def accounted(job: Pass, new: Obj) -> Obj:
    """A status that is about to be written, with all time until now; that of a job that had ended
    before is as it was."""
    if outcome(job.before):
        return new
    told = _account(new, job.ledger, job.now, job.workload.created)
    if job.workload.hang is not None and _is_hung(new) and not _is_hung(job.before):
        _was_hung(told, job.workload.hang.after_seconds)
    if (heard := _heard(new, job.ledger)) is None:
        return {**new, "goodput": told}
    work = _judge(told, job, heard)
    return {**new, "goodput": told, "internal": {**new["internal"], "work": work}}


def _is_hung(status: Mapping[str, Any]) -> bool:
    return _condition(status, ConditionType.HUNG).get("status") == "True"


def _was_hung(goodput: Obj, seconds: float) -> None:
    """A hang is told only after it has lasted for a while, which was taken for training."""
    trained = [each for each in goodput["attempts"] if each.get(Part.TRAINING.value)]
    for attempt in trained[-1:]:
        _move(goodput, attempt, Part.HUNG, min(seconds, attempt[Part.TRAINING.value]))


def _heard(status: Mapping[str, Any], ledger: Ledger) -> Obj | None:
    """What the attempt under way has told: its number and step, when, and the last checkpoint."""
    progress = status.get("progress") or {}
    step, at = Reached.of(progress).step, parse(progress.get("lastReportTime"))
    start = parse(ledger.attempts[-1]["startTime"]) if ledger.attempts else None
    if step is None or at is None or start is None or at < start:
        return None
    told: Obj = {"attempt": ledger.attempts[-1]["number"], "from": step, "at": render(at)}
    if rate := progress.get("stepsPerSecond"):
        told["rate"] = rate
    if made := progress.get("checkpoint"):
        told["saved"] = made["time"]
    return told


def _judge(goodput: Obj, job: Pass, heard: Obj) -> Obj:
    """Tell training from what it turns out to have been, by steps; what is known of these then.

    With the first step of an attempt it is known since when it trains, and what of the one before
    is done again. One that told none of a job that does has not trained.
    """
    work, number = job.ledger.work, heard["attempt"]
    if work is not None and work["attempt"] == number:
        return {**heard, "from": work["from"], "at": work["at"]}
    goodput.setdefault(Part.LOST.value, 0.0)
    since = max((job.now - (parse(heard["at"]) or job.now)).total_seconds(), 0.0)
    for each in goodput["attempts"]:
        trained = each.get(Part.TRAINING.value, 0.0)
        if work is not None and each["number"] == work["attempt"]:
            _move(goodput, each, Part.LOST, min(_lost(job, work, heard, trained), trained))
        elif each["number"] == number or (work is not None and each["number"] > work["attempt"]):
            idle = trained - (since if each["number"] == number else 0.0)
            _move(goodput, each, Part.RESTARTING if work else Part.STARTING, idle)
    return heard


def _lost(job: Pass, work: Mapping[str, Any], heard: Obj, trained: float) -> float:
    """Seconds of an attempt since its last checkpoint; where it told none, those of the steps that
    are done again."""
    ended = (a.get("endTime") for a in job.ledger.attempts if a["number"] == work["attempt"])
    end, saved = parse(next(ended, None)), parse(work.get("saved"))
    if job.workload.scope is Scope.JOB and end is not None and saved is not None:
        return max((end - saved).total_seconds(), 0.0)
    gained, rate = heard["from"] - work["from"], work.get("rate")
    if gained <= 0:
        return trained
    return max(trained - gained / rate, 0.0) if rate else 0.0


def _move(goodput: Obj, attempt: Obj, part: Part, seconds: float) -> None:
    """Time that was taken for training."""
    for each in (goodput, attempt) if seconds > 0 else ():
        left = each.get(Part.TRAINING.value, 0.0) - seconds
        each[Part.TRAINING.value] = round(max(left, 0.0), _DIGITS)
        each[part.value] = round(each.get(part.value, 0.0) + seconds, _DIGITS)


def _account(
    status: Mapping[str, Any], ledger: Ledger, now: datetime, created: datetime | None
) -> Obj:
    """`status` holds what the job does from now on, and the goodput that was written last."""
    known = status.get("goodput") or {}
    since = parse(known.get("asOf"))
    if since is None:
        since, known = min(created or now, now), {"state": Part.STARTING.value}
    seconds = max((now - since).total_seconds(), 0.0)
    part = str(known.get("state", ""))
    sums = _add(known, part, seconds) if part else _parts(known)
    attempts = [dict(each) for each in known.get("attempts") or ()]
    if part and attempts:
        attempts[-1] = {"number": attempts[-1]["number"], **_add(attempts[-1], part, seconds)}
    number = ledger.attempts[-1]["number"] if ledger.attempts else None
    if number is not None and not attempts:
        attempts = [{"number": number, **sums}]  # with what came before it
    elif number is not None and number != attempts[-1]["number"]:
        attempts.append({"number": number})
    state = _state(status, ledger)
    return {
        **sums,
        **({"state": state.value} if state else {}),
        "asOf": render(now),
        "attempts": attempts[-HISTORY:],
    }


def _state(status: Mapping[str, Any], ledger: Ledger) -> Part | None:
    """What the job spends its time on from now on; None once it has ended."""
    if ledger.ended:
        return None
    if ledger.paused:
        return Part.PAUSED
    running = _condition(status, ConditionType.RUNNING)
    if ledger.held or (running.get("status") != "True" and running.get("reason") in _QUEUED):
        return Part.QUEUED
    if running.get("status") == "True":
        return Part.HUNG if _is_hung(status) else Part.TRAINING
    before = ledger.attempts[-2] if len(ledger.attempts) > 1 else {}
    is_again = before and before.get("reason") not in (PAUSED, EVICTED)
    return Part.RESTARTING if is_again else Part.STARTING


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((c for c in status.get("conditions") or () if c["type"] == kind), {})


def _parts(known: Mapping[str, Any]) -> Obj:
    return {part.value: known[part.value] for part in Part if part.value in known}


def _add(known: Mapping[str, Any], part: str, seconds: float) -> Obj:
    sums = _parts(known)
    if seconds:
        sums[part] = round(sums.get(part, 0.0) + seconds, _DIGITS)
    return sums
