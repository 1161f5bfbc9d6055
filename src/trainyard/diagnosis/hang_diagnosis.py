"""Explains a job whose ranks hang, or wait for one that works (decision 225)."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.diagnosis.situation import Cause, Object, Situation, used_up
from trainyard.kinds.shared.reasons import ConditionReason, ConditionType
from trainyard.schema.times import duration

_REMEDIES = {
    ConditionReason.COLLECTIVES_DIFFER: "have every rank call the same collectives, in the same "
    "order and with the same shapes: look for an `if rank == …` around one of them",
    ConditionReason.RANK_STOPPED: "let it go on (SIGCONT), or find out what stopped it; "
    "runPolicy.hang.action: Restart would start the job again",
    ConditionReason.HUNG: "look at that line: what it waits for does not come; "
    "runPolicy.hang.action: Restart would start the job again",
}


def hanging(situation: Situation) -> Iterator[Cause]:
    """The ranks of a job that runs wait for one of them, or for each other."""
    condition = situation.job.condition(ConditionType.HUNG)
    reason, text = condition.get("reason"), str(condition.get("message") or "")
    if not condition or reason in (ConditionReason.NONE, ConditionReason.NOT_OBSERVED):
        return
    since = duration(situation.ago(condition.get("lastTransitionTime")))
    stacks = f"`trainyard stacks {situation.job.name}` shows what every rank does"
    if condition.get("status") == "True":
        advice = (_REMEDIES[ConditionReason(reason)],) if reason in _REMEDIES else ()
        yield Cause(f"it hangs, as is known for {since}: {text}", (), (*advice, stacks))
    elif reason == ConditionReason.WAITS_FOR_BUSY:
        evidence = "that is no hang, as long as it works"
        yield Cause(f"it gets no further for now: {text}", (evidence,), (stacks,))
    elif reason == ConditionReason.HANG_SUSPECTED:
        yield Cause(f"it may hang: {text}", (), (stacks,))
    else:
        yield Cause(f"it does nothing at present: {text}", (), (stacks,))


def ended_by_hang(situation: Situation, failure: Object | None) -> Cause | None:
    """The end of a job by a hang; None of one that ended otherwise."""
    if (failure or {}).get("reason") != ConditionReason.HUNG:
        return None
    condition = situation.job.condition(ConditionType.HUNG)
    text, reason = str(condition.get("message") or ""), ConditionReason(condition["reason"])
    remedy = _REMEDIES.get(reason, _REMEDIES[ConditionReason.HUNG]).partition("; ")[0]
    found = f"`trainyard stacks {situation.job.name}` shows the stacks of all ranks at that time"
    again: tuple[str, ...] = ()
    if situation.job.condition("Failed").get("reason") == ConditionReason.BACKOFF_LIMIT_EXCEEDED:
        again = (used_up(situation.job, situation.replica(str((failure or {})["replica"]))),)
    return Cause(f"it hung: {text}", again, (remedy, found))
