"""Jobs that have ended: how, and what could be done about it."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.api.reasons import ConditionReason, Phase
from trainyard.cli.diagnosis import exits
from trainyard.cli.diagnosis.situation import Cause, Object, Situation, lines_of
from trainyard.cli.format import span


def succeeded(situation: Situation) -> Iterator[Cause]:
    """The job has done its work."""
    if situation.phase == Phase.SUCCEEDED:
        status = situation.status
        took = span(status.get("startTime"), status.get("completionTime"), situation.now)
        evidence = (f"it took {took}",) if took else ()
        yield Cause("it has done its work", evidence)


def failed(situation: Situation) -> Iterator[Cause]:
    """The job has failed, for one of a few reasons."""
    if situation.phase != Phase.FAILED:
        return
    condition = situation.condition("Failed")
    match condition.get("reason"):
        case ConditionReason.INVALID_SPEC:
            yield _invalid(situation, condition)
        case ConditionReason.DEADLINE_EXCEEDED:
            yield _overdue(situation, condition)
        case ConditionReason.QUEUE_MAX_DURATION:
            yield Cause(
                "its queue ended it: it ran longer than the queue's maxDuration",
                lines_of(condition.get("message")),
                ("raise maxDuration of the queue, use another queue, or save checkpoints",),
            )
        case _:
            yield _by_a_replica(situation, condition)


def _invalid(situation: Situation, condition: Object) -> Cause:
    text = str(condition.get("message") or "")
    head = f"{situation.kind} {situation.name} is invalid: "
    return Cause(
        "its spec is invalid, so that nothing of it was started",
        tuple(text.removeprefix(head).split("; ")),
        (
            (
                "correct the manifest (`trainyard validate -f FILE` checks it), then "
                f"`trainyard delete {situation.name}` and submit it again"
            ),
        ),
    )


def _overdue(situation: Situation, condition: Object) -> Cause:
    status = situation.status
    seconds = situation.run_policy.get("activeDeadlineSeconds", "?")
    took = span(status.get("startTime"), status.get("completionTime"), situation.now)
    return Cause(
        f"it ran longer than its deadline of {seconds} s",
        (*lines_of(condition.get("message")), f"it was active for {took}"),
        (
            "raise spec.runPolicy.activeDeadlineSeconds, or save checkpoints and submit it again",
            f"`trainyard logs {situation.name}` shows how far it came",
        ),
    )


def _by_a_replica(situation: Situation, condition: Object) -> Cause:
    failure = situation.last_failure
    words = situation.last_words
    code = failure.get("exitCode")
    reading = exits.read(code, str(failure.get("reason") or ""), words)
    if not failure:
        return Cause(
            "a replica failed for good",
            (*lines_of(condition.get("message")), *_quoted(words)),
            _look(situation),
        )
    replica = situation.replica(str(failure["replica"]))
    ending = f"exit code {code}" if code is not None else str(failure.get("reason") or "no exit")
    return Cause(
        f"{replica} failed ({ending}): {reading.what}",
        (*lines_of(condition.get("message")), *_quoted(words), *_budget(situation, condition)),
        (*reading.advice, *_policy(situation, condition, code), *_look(situation, replica)),
    )


def _quoted(words: str) -> tuple[str, ...]:
    return tuple(f"| {line}" for line in lines_of(words))


def _budget(situation: Situation, condition: Object) -> tuple[str, ...]:
    if condition.get("reason") != ConditionReason.BACKOFF_LIMIT_EXCEEDED:
        return ()
    spent = situation.status.get("backoffCount")
    if spent is None:
        spent = sum(task.get("restartCount") or 0 for task in situation.status.get("tasks") or ())
    return (f"its restarts are used up: {spent} so far",)


def _policy(situation: Situation, condition: Object, code: int | None) -> tuple[str, ...]:
    """Why it was not restarted, where a restart may have helped."""
    if condition.get("reason") == ConditionReason.BACKOFF_LIMIT_EXCEEDED:
        where = "restartPolicy.limit" if situation.kind in _LIMITS else "runPolicy.backoffLimit"
        return (f"more restarts are allowed by {where}, if a restart can help",)
    if code in exits.RESTART_CODES:
        return ("restartPolicy ExitCode or OnFailure would have restarted it",)
    return ()


_LIMITS = frozenset({"GenericJob", "ColossalAIJob"})


def _look(situation: Situation, replica: str = "") -> tuple[str, ...]:
    option = f" --replica {replica}" if replica else ""
    return (f"`trainyard logs {situation.name}{option}` shows what it wrote",)
