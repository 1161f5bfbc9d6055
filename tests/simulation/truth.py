"""What really happened to jobs and pods, as the monitor keeps it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.simulation import job_policies
from tests.simulation.server import Key, Obj
from trainyard.kinds.shared import labels


@dataclass(slots=True)
class PodTruth:
    """What really happened to one pod."""

    name: str
    uid: str
    type: str
    index: int
    attempt: int
    own_end: int | None = None
    """Exit code, when its containers ended by themselves."""
    message: str = ""
    """What it said then."""
    disturbed: bool = False
    """Somebody or something else took it away."""
    action: str = ""
    """What the job's podFailurePolicy says of its own end."""
    apart: bool = False
    """It restarts alone in a job whose others restart together."""
    gone: bool = False
    replaced: bool = False


@dataclass(slots=True)
class JobTruth:
    """What really happened to one job."""

    key: Key
    pods: dict[str, PodTruth] = field(default_factory=dict)
    attempt: int = 0
    failures: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Own failures per attempt that was current at that moment."""
    fatal: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Those of them that a rule of podFailurePolicy fails the job for."""
    completions: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    disturbances: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    countable: int = 0
    """Disturbances that a rule of podFailurePolicy makes a cost."""
    given_up: set[int] = field(default_factory=set)
    """Attempts whose launch took too long, or whose ranks hung, as far as a pass could see."""
    hung: set[tuple[str, int]] = field(default_factory=set)
    """Pods that were to be restarted for a hang, though they run: names and attempts."""
    reached: tuple[int, int] = (-1, -1)
    """The steps of the last checkpoint and of all, as a restart was last counted."""
    vague: bool = False
    """Paused, resized or the like: what is counted then has no exact answer."""
    was_paused: bool = False
    deleted: bool = False


def ended_pods(pods: list[PodTruth]) -> tuple[int, int]:
    """How many pods ended by themselves, at a cost, and were replaced: for certain, and at most."""
    ended = [pod for pod in pods if pod.own_end is not None and pod.action != job_policies.IGNORE]
    least = sum(1 for pod in ended if pod.replaced and not pod.disturbed)
    return least, len(ended)


def has_fatal_end(job: JobTruth, stored: Obj) -> bool:
    """Whether a pod ended as a rule of podFailurePolicy fails the job for."""
    disrupted = job_policies.FAIL_JOB in job_policies.of_disruptions(stored)
    return any(
        pod.action == job_policies.FAIL_JOB or (disrupted and pod.disturbed)
        for pod in job.pods.values()
    )


def survived_fatal_ends(job: JobTruth, certain: set[int]) -> list[int]:
    """Attempts that others followed though all that failed in them fails the job; of those that
    certainly had pods."""
    return [
        attempt
        for attempt in sorted(certain)
        if attempt < job.attempt
        and not job.vague
        and not job.disturbances[attempt]
        and attempt not in job.given_up
        and 0 < job.fatal[attempt] == job.failures[attempt]
    ]


def most_incidents(job: JobTruth, attempt: int, *, survivors_stay: bool) -> int:
    """How many incidents the failures can have been that came while this was the attempt.

    They are one, but for an elastic job whose survivors stay: what fails in it after the first
    has been decided upon is another one, though no pod has come in between.
    """
    return job.failures[attempt] if survivors_stay else min(job.failures[attempt], 1)


def truth_of(pod: Obj) -> PodTruth:
    metadata = pod["metadata"]
    label, annotations = metadata["labels"], metadata.get("annotations") or {}
    attempt = annotations.get(labels.ATTEMPT) or label.get(labels.ATTEMPT) or "1"
    return PodTruth(
        name=metadata["name"],
        uid=metadata["uid"],
        type=label[labels.REPLICA_TYPE],
        index=int(label[labels.REPLICA_INDEX]),
        attempt=int(attempt),
    )
