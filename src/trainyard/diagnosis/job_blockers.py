"""What blocks a whole job that has not ended: deletion, pause, the controller, quotas, disks."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.diagnosis import replica_failures
from trainyard.diagnosis.finished_jobs import quote_failure
from trainyard.diagnosis.situation import Cause, Situation, lines_of, listed
from trainyard.kinds.shared.labels import OPERATOR
from trainyard.kinds.shared.reasons import ConditionReason, Phase
from trainyard.schema.times import duration, parse

_UNSEEN_SECONDS = 5.0


def being_deleted(situation: Situation) -> Iterator[Cause]:
    """The job is on its way out, and something holds it."""
    if not situation.job.is_deleting:
        return
    metadata = situation.job.metadata
    evidence = [f"deletion began {duration(situation.ago(metadata['deletionTimestamp']))} ago"]
    advice = []
    if finalizers := metadata.get("finalizers"):
        evidence.append(f"finalizers: {', '.join(finalizers)}")
        advice.append("whoever set the finalizers must remove them")
    if situation.pods:
        pods = [situation.replica(pod) for pod in situation.pods]
        evidence.append(f"pods that are left: {listed(pods)}")
        advice.append("pods end within their grace period; wait for it")
    yield Cause("it goes as soon as what it owns is gone", tuple(evidence), tuple(advice))


def disk_is_full(situation: Situation) -> Iterator[Cause]:
    """Nothing of the job can be written down any more."""
    if situation.full_disk and not situation.job.is_over:
        yield Cause(
            "the cluster cannot write down what becomes of it: the disk is full",
            (f"no room is left in {situation.full_disk}", "what replicas print is lost meanwhile"),
            ("make room there; then it goes on by itself",),
        )


def paused(situation: Situation) -> Iterator[Cause]:
    """Somebody wants the job to wait."""
    if not situation.job.is_paused:
        return
    evidence = ["spec.runMode.pause.enabled is true"]
    if situation.pods:
        pods = [situation.replica(pod) for pod in situation.pods]
        evidence.append(f"still ending: {listed(pods)}")
    yield Cause(
        "its pods are deleted until it is resumed",
        tuple(evidence),
        (f"`trainyard resume {situation.job.name}`",),
    )


def not_seen(situation: Situation) -> Iterator[Cause]:
    """No controller has looked at the job."""
    created = situation.job.metadata.get("creationTimestamp")
    manager = situation.job.spec.get("managedBy")
    if manager not in (None, OPERATOR) and not situation.job.status.get("phase"):
        yield Cause(
            f"it is left to another controller, {manager}, which has not told of it yet",
            (f"spec.managedBy is {manager}",),
            ("whoever runs that controller knows more; without the field it would run here",),
        )
        return
    if situation.job.status.get("phase") or situation.ago(created) < _UNSEEN_SECONDS:
        return
    advice = (
        "`trainyard status`, and its log, tell whether the controller runs"
        if situation.is_local
        else "check that `trainyard operator` runs on the cluster, and watches this namespace"
    )
    yield Cause(
        "no controller has taken notice of it",
        (f"it was created {duration(situation.ago(created))} ago and has no status",),
        (advice,),
    )


def reported_by_controller(situation: Situation) -> Iterator[Cause]:
    """What the controller itself says that it cannot do."""
    condition = situation.job.condition("Running")
    if condition.get("status") == "True":
        return
    evidence = lines_of(condition.get("message"))
    match condition.get("reason"):
        case ConditionReason.NO_GANG_SCHEDULER:
            yield Cause(
                "it asks for scheduler.t9kScheduler, and no scheduler here places pods together",
                evidence,
                (
                    (
                        "install Kueue, Volcano or scheduler-plugins and start the operator anew, "
                        "or name one in its setting gangScheduler, or remove spec.scheduler"
                    ),
                ),
            )
        case ConditionReason.NAME_CONFLICT:
            yield Cause(
                "a name that it needs is held by an object of somebody else",
                evidence,
                ("delete that object, or give the job another name",),
            )
        case ConditionReason.WAITS_FOR_ADMISSION:
            queue = "kubectl get localqueues,workloads.kueue.x-k8s.io"
            advice = f"`{queue} -n {situation.job.namespace}` shows who holds the quota"
            yield Cause("Kueue has not admitted it: it waits in its queue", evidence, (advice,))
        case ConditionReason.FLAVOR_UNKNOWN:
            advice = "whoever runs the operator must let it list resourceflavors.kueue.x-k8s.io"
            yield Cause("nothing says where its pods may run", evidence, (advice,))
        case ConditionReason.CREATION_REFUSED:
            yield _refused(situation, evidence)


def _refused(situation: Situation, evidence: tuple[str, ...]) -> Cause:
    text = " ".join(evidence).lower()
    namespace = situation.job.namespace
    advice = "change what the message names; the creation is tried again by itself"
    what = "the API server refuses to create what it needs"
    if "quota" in text:
        what = "the namespace's quota does not allow what it needs"
        advice = (
            f"ask for less, end other jobs of namespace {namespace}, or have its ResourceQuota "
            "raised; the creation is tried again by itself"
        )
    elif "webhook" in text or "denied the request" in text:
        what = "an admission webhook of the cluster refuses what it needs"
    return Cause(what, evidence, (advice,))


def restarting(situation: Situation) -> Iterator[Cause]:
    """Something failed, and is started again, soon or just now (decision 24)."""
    failure = situation.job.last_failure
    if not failure or _all_run(situation):
        return
    death = replica_failures.failure_of_attempt(situation, failure)
    evidence = [
        (
            f"attempt {failure.get('number', '?')} was ended by {death.who} ({death.ending}) "
            f"{duration(situation.ago(failure['endTime']))} ago: {death.reading.what}"
        ),
        *death.evidence,
        *quote_failure(death),
        *([death.ruling] if death.ruling else []),
    ]
    if spent := situation.job.budget:
        evidence.append(f"{spent} restarts are used up")
    wait = _until_next(situation)
    ended = f"{death.who} {'was taken away' if death.is_taken else 'failed'} ({death.ending})"
    what = f"{ended}, and replicas are started again"
    if wait is not None:
        moment, seconds = wait
        what = f"{ended}; the next try is in {duration(seconds)}"
        evidence.append(f"restarts are delayed, the longer the more have failed: next at {moment}")
    logs = f"`trainyard logs {situation.job.name}{death.logs} --previous`"
    yield Cause(what, tuple(evidence), (*death.reading.advice, logs))


def _all_run(situation: Situation) -> bool:
    counts = situation.job.aggregate
    return situation.job.phase == Phase.RUNNING and not any(
        counts.get(phase) for phase in ("creating", "pending", "unknown")
    )


def _until_next(situation: Situation) -> tuple[str, float] | None:
    """When the next restart is due, and in how many seconds; None if none is waited for."""
    internal = situation.job.status.get("internal") or {}
    replicas = (internal.get("replicas") or {}).values()
    times = [internal.get("notBefore"), *(replica.get("notBefore") for replica in replicas)]
    moments = [moment for text in times if (moment := parse(text)) is not None]
    later = [moment for moment in moments if moment > situation.now]
    if not later:
        return None
    first = min(later)
    return f"{first:%H:%M:%S} UTC", (first - situation.now).total_seconds()


def resuming(situation: Situation) -> Iterator[Cause]:
    """The pause is over, and the replicas are not back yet."""
    if situation.job.phase == Phase.RESUMING:
        yield Cause("it was resumed, and waits for all of its replicas to run")


def in_debug(situation: Situation) -> Iterator[Cause]:
    """Nothing trains in debug mode."""
    if not situation.job.is_debugged:
        return
    yield Cause(
        "it is in debug mode: its replicas wait, and nothing trains by itself",
        ("spec.runMode.debug.enabled is true",),
        (
            f"`trainyard exec {situation.job.name}` opens a shell in a replica",
            "to train, create the job again without spec.runMode.debug",
        ),
    )


_AWAITED = ("creating", "pending", "unknown")


def _joining(replicas: int) -> str:
    return "the other one joins" if replicas == 1 else f"the other {replicas} join"


def degraded(situation: Situation) -> Iterator[Cause]:
    """It runs, but not as it should."""
    elastic = situation.job.elastic
    counts = situation.job.aggregate
    expected = elastic.get("expectedReplicas")
    if situation.job.is_elastic and situation.job.phase == Phase.RUNNING and expected:
        running = counts.get("running", 0)
        if running < expected:
            awaited = sum(counts.get(phase, 0) for phase in _AWAITED)
            yield Cause(
                f"it is elastic and runs with {running} of {expected} replicas",
                (f"it needs {situation.job.min_replicas} at least",),
                (f"{_joining(awaited)} as soon as possible",) if awaited else (),
            )
    failure = situation.job.condition("ReplicaFailure")
    if failure.get("status") == "True" and (lost := counts.get("failed")):
        yield Cause(
            f"{lost} of its replicas failed for good, and it goes on without "
            f"{'it' if lost == 1 else 'them'}",
            lines_of(failure.get("message")),
            (f"`trainyard logs {situation.job.name}` shows what they wrote",),
        )
