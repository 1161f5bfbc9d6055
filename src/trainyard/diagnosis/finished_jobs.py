"""How a job ended, and what its user can do about it."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.diagnosis import hang_diagnosis, replica_failures
from trainyard.diagnosis.situation import (
    Cause,
    Object,
    Situation,
    limit_field,
    lines_of,
    listed,
    used_up,
)
from trainyard.evidence.permanent_causes import is_program_error
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.reasons import ConditionReason, Phase
from trainyard.kinds.shared.workload import RESTARTABLE_CODES
from trainyard.schema.times import span

_QUOTED_LINES = 6
_ALIKE = 2
"""So many failures in a row by one lasting cause are not mended by another start."""
_SSHD_ENDS_SECONDS = 30.0
"""Longer than the sshd of a replica goes on after the launch."""
_RULES_FIELD = "spec.runPolicy.podFailurePolicy"


def succeeded(situation: Situation) -> Iterator[Cause]:
    """The job has done its work."""
    if situation.job.phase == Phase.SUCCEEDED:
        status = situation.job.status
        took = span(status.get("startTime"), status.get("completionTime"), situation.now)
        evidence = [f"it took {took}"] if took else []
        advice = []
        running = [p for p in situation.pods if p.phase == "Running" and not p.deleting_since]
        setting, remedy, is_kept = _clean_up(situation)
        if not is_kept or (situation.job.kind.launches_over_ssh and _has_just_ended(situation)):
            running = []  # which end now, as sshd does with the launch
        if left := [situation.replica(pod) for pod in running]:
            evidence.append(f"still running, as {setting} has it: {listed(left)}")
            advice.append(
                f"`trainyard delete {situation.job.name}` ends what goes on; with {remedy} it ends "
                "with the job"
            )
        yield Cause("it has done its work", tuple(evidence), tuple(advice))


def _has_just_ended(situation: Situation) -> bool:
    return situation.ago(situation.job.status.get("completionTime")) < _SSHD_ENDS_SECONDS


def _clean_up(situation: Situation) -> tuple[str, str, bool]:
    """What has replicas go on after the job's end, what would have them end with it, and whether
    the spec has it so."""
    job = situation.job
    fields = job.kind.schema["properties"]["spec"]["properties"]
    if "cleanUpWorkers" in fields.get("runPolicy", {}).get("properties", {}):
        remedy = "spec.runPolicy.cleanUpWorkers: true"
        return "cleanUpWorkers false", remedy, not job.run_policy.get("cleanUpWorkers")
    of_spec = "cleanUpPolicy" in fields
    policy = (job.spec if of_spec else job.run_policy).get("cleanUpPolicy") or "None"
    field = "cleanUpPolicy" if of_spec else "runPolicy.cleanUpPolicy"
    return "cleanUpPolicy None", f"spec.{field}: Unfinished", policy == "None"


def failed(situation: Situation) -> Iterator[Cause]:
    """The job has failed, for one of a few reasons."""
    if situation.job.phase != Phase.FAILED:
        return
    condition = situation.job.condition("Failed")
    match condition.get("reason"):
        case ConditionReason.INVALID_SPEC:
            yield _invalid_spec(situation, condition)
        case ConditionReason.DEADLINE_EXCEEDED:
            yield _deadline_exceeded(situation)
        case ConditionReason.QUEUE_MAX_DURATION:
            yield Cause(
                "its queue ended it: it ran longer than the queue's maxDuration",
                lines_of(condition.get("message")),
                ("raise maxDuration of the queue, use another queue, or save checkpoints",),
            )
        case _:
            yield _failed_by_replica(situation, condition)


def _invalid_spec(situation: Situation, condition: Object) -> Cause:
    text = str(condition.get("message") or "")
    head = f"{situation.job.kind.kind} {situation.job.name} is invalid: "
    return Cause(
        "its spec is invalid, so that nothing of it was started",
        tuple(text.removeprefix(head).split("; ")),
        (
            (
                "correct the manifest (`trainyard validate -f FILE` checks it), then "
                f"`trainyard delete {situation.job.name}` and submit it again"
            ),
        ),
    )


def _deadline_exceeded(situation: Situation) -> Cause:
    status = situation.job.status
    command = (situation.job.metadata.get("annotations") or {}).get(labels.COMMAND, "")
    is_option = "--timeout" in command.replace("=", " ").split()
    limit = "--timeout" if is_option else "spec.runPolicy.activeDeadlineSeconds"
    seconds = situation.job.run_policy.get("activeDeadlineSeconds", "?")
    took = span(status.get("startTime"), status.get("completionTime"), situation.now)
    return Cause(
        f"it ran longer than its deadline of {seconds} s",
        (f"it was active for {took}",),
        (
            f"raise {limit}, or save checkpoints and run it again",
            f"`trainyard logs {situation.job.name}` shows how far it came",
        ),
    )


def _failed_by_replica(situation: Situation, condition: Object) -> Cause:
    failure = situation.job.last_failure
    if hung := hang_diagnosis.ended_by_hang(situation, failure):
        return hung
    if not failure:
        return Cause(
            "it has failed",
            (*lines_of(condition.get("message")), *quoted(situation.failure_output)),
            _logs_advice(situation),
        )
    death = replica_failures.failure_of_attempt(situation, failure)
    return Cause(
        f"{death.who} failed ({death.ending}): {death.reading.what}",
        (
            *lines_of(condition.get("message")),
            *death.evidence,
            *quote_failure(death),
            *_why_not_restarted(situation, condition, death),
        ),
        (
            *death.reading.advice,
            *_restart_advice(situation, condition, death),
            *_logs_advice(situation, death.logs),
        ),
    )


def quote_failure(death: replica_failures.ReplicaFailure) -> tuple[str, ...]:
    """The exception that ended it and its place; where there is none, the last lines."""
    if (raised := death.raised) is None:
        return quoted("\n".join(line for line in death.last_lines if line != death.reading.line))
    place = (f"| {raised.place.where}: {raised.place.source}",) if raised.place else ()
    return (f"| {raised.text}", *place)


def quoted(text: str) -> tuple[str, ...]:
    """The last lines of a log, as evidence."""
    return tuple(f"| {line}" for line in lines_of(text)[-_QUOTED_LINES:])


def _why_not_restarted(
    situation: Situation, condition: Object, death: replica_failures.ReplicaFailure
) -> tuple[str, ...]:
    """Why it was not restarted (any more) (decisions 23, 114)."""
    if condition.get("reason") == ConditionReason.POD_FAILURE_POLICY:
        return ()  # its message names the rule
    # Which replica was restarted, or not, goes by the status, whoever is to blame.
    named = situation.replica(str(situation.job.last_failure["replica"]))
    code = situation.job.last_failure.get("exitCode")
    policy, limit = situation.job.restart_policy(named)
    if condition.get("reason") == ConditionReason.RESTARTS_IN_VAIN:
        left = ", with restarts left" if situation.job.restarts < limit else ""
        return (f"runPolicy.restartJudge has it end here{left}",)
    if condition.get("reason") == ConditionReason.BACKOFF_LIMIT_EXCEEDED:
        return (used_up(situation.job, named),)
    if death.never_starts:
        return ("another try would end the same way, so there is none",)
    if death.ruling:
        return (
            f"{death.ruling}; restartPolicy is {policy}, {limit_field(situation.job)} is {limit}",
        )
    if policy == "Never":
        return ("restartPolicy is Never: it is not restarted",)
    if policy == "ExitCode" and code not in RESTARTABLE_CODES:
        codes = ", ".join(map(str, RESTARTABLE_CODES))
        return (f"restartPolicy is ExitCode, which restarts after {codes} only",)
    if limit == 0:
        return (f"restartPolicy is {policy}, but {limit_field(situation.job)} is 0",)
    if not situation.job.kind.has_shared_budget:  # a rule counts only those that failed for good
        return (used_up(situation.job, named),)
    return ()


def _restart_advice(
    situation: Situation, condition: Object, death: replica_failures.ReplicaFailure
) -> tuple[str, ...]:
    """What would have restarted it, where a restart may have helped."""
    if death.repeated >= _ALIKE:
        times = f"it has failed {death.repeated} times in a row so, and got no further in between"
        return (f"a restart will not help: {times}",)
    if death.raised is not None and is_program_error(death.raised):
        return ("a restart will not help before that is corrected",)
    if condition.get("reason") == ConditionReason.BACKOFF_LIMIT_EXCEEDED:
        return (
            f"more restarts are allowed by {limit_field(situation.job)}, if a restart can help",
        )
    if condition.get("reason") == ConditionReason.POD_FAILURE_POLICY:
        return (f"if a restart can help, change that rule of {_RULES_FIELD}",)
    policy, limit = situation.job.restart_policy(death.replica)
    if policy == "Never" and death.is_accident and limit:
        return ("restartPolicy ExitCode or OnFailure would have restarted it",)
    return ()


def _logs_advice(situation: Situation, options: str = "") -> tuple[str, ...]:
    return (f"`trainyard logs {situation.job.name}{options}` shows what it wrote",)
