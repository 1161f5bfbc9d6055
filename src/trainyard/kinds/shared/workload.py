"""A job as the lifecycle sees it, whatever its kind.

A kind's `describe()` turns a job into a `Workload`; after that nothing asks for the kind. Kinds
differ in data, such as whose exit decides and what a restart budget covers, and in the functions
that build pods and other objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from datetime import datetime
from enum import Enum, StrEnum
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from trainyard.kube.resources import Resource
from trainyard.schema.dataclass import dataclass

Manifest = dict[str, Any]
LAUNCHED_PATH = "/t9k/run/launched"
"""A file in the launching container that exists once the training has begun (decision 100)."""


class ReplicaKey(NamedTuple):
    """One replica of a job: its type and its number within the type, from 0."""

    type: str
    ordinal: int


class RestartPolicy(StrEnum):
    """When a replica that ended is started again."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


# Decision 25. Shells and container runtimes tell a signal as 128 + its number:
# https://www.gnu.org/software/bash/manual/html_node/Exit-Status.html
ASKS_FOR_RESTART = 138
"""The exit code by which a program asks to be restarted."""
RESTARTABLE_CODES = (130, 137, ASKS_FOR_RESTART, 143)
"""What `ExitCode` restarts: SIGINT, SIGKILL and SIGTERM besides."""


class SuccessPolicy(StrEnum):
    """Whose exit 0 makes a job without rules of its own succeed (decision 116)."""

    RANK0 = "Rank0"
    ALL_REPLICAS = "AllReplicas"


class FailureAction(StrEnum):
    """What follows from a failure that matches a rule of `podFailurePolicy` (decision 114)."""

    FAIL_JOB = "FailJob"
    IGNORE = "Ignore"
    """The replica starts again, and no budget is spent."""
    COUNT = "Count"
    """The failure is the replica's own: the restart policy decides."""
    RESTART = "Restart"
    """The replica starts again while there is budget, whatever the restart policy says."""


class HangAction(StrEnum):
    """What follows when the ranks of a job get nowhere (decision 225)."""

    EXPLAIN = "Explain"
    RESTART = "Restart"
    """The replica to blame counts as failed."""
    FAIL = "Fail"
    """The job fails."""


class CleanUpPolicy(StrEnum):
    """Which pods are deleted once the job has ended."""

    ALL = "All"
    UNFINISHED = "Unfinished"
    NONE = "None"
    WORKERS = "Workers"
    """All pods but the launcher's (`cleanUpWorkers`) (decision 27)."""


class Scope(StrEnum):
    """What is started again when a replica fails."""

    JOB = "Job"
    """Every replica: the processes form one group that nobody can rejoin (decision 24)."""
    REPLICA = "Replica"
    """The replica that failed."""


class Lifetime(Enum):
    """When an object beside the pods exists."""

    JOB = "as long as the job"
    UNPAUSED = "as long as the job, but not while it is paused"


class Generated(Enum):
    """Contents of an object that only its creator can make: random ones, and looked-up values."""

    NOTHING = "nothing"
    SSH_KEYS = "ssh keys"
    """`data` gets `id_ed25519`, `id_ed25519.pub`, `authorized_keys`, `ssh_host_ed25519_key` and
    `ssh_host_ed25519_key.pub`, beside what the manifest's own `data`/`stringData` holds."""
    CHANNEL = "token"
    """`data` gets `token` and `ca.crt`, by which pods report to the controller."""
    KUEUE_PRIORITY = "value of a priority class"
    """`spec.priority` of Kueue's Workload is that of the class in `spec.priorityClassRef`."""


@dataclass(frozen=True, slots=True)
class ReplicaType:
    """A replica type; the order of a workload's types is the order of ranks.

    `limit` counts restarts: of each replica where `Workload.shared_budget` is False, else of the
    whole job, as seen by a failure of this type. `main_container` names the container whose exit
    is the replica's; None: the pod's phase is (decision 21).
    """

    name: str
    replicas: int
    policy: RestartPolicy
    limit: int
    main_container: str | None = None
    is_launcher: bool = False
    restarts_alone: bool = False
    """Its replicas restart one by one in a job whose other types restart together (decision
    117)."""


@dataclass(frozen=True, slots=True)
class HangPolicy:
    """How long ranks may make no progress, and what follows."""

    after_seconds: int
    action: HangAction
    record: Callable[[str, Mapping[str, str]], Manifest] = field(compare=False)
    """Builds the ConfigMap of a name that keeps the evidence."""
    may_answer_requests: bool = False
    """Ranks may be waiting for requests: that is no hang."""
    is_requested: bool = False
    """The user wants ranks observed even if that hides a PYTHONPATH of the image."""
    launch_adds_observer: bool = False
    """What starts the training puts the observer before the PYTHONPATH."""
    launched: bool = False
    """A launcher starts the ranks, so they are meant to meet."""


Rule = Mapping[str, tuple[int, ...]]
"""Replica types and indexes. The rule holds when all these replicas have its outcome."""


@dataclass(frozen=True, slots=True)
class ExitCodes:
    """Matches a container's exit code that is in `values`, or, if not `is_in`, that is not.

    `container` None: the one whose exit is the replica's.
    """

    container: str | None
    is_in: bool
    values: frozenset[int]


@dataclass(frozen=True, slots=True)
class FailureRule:
    """A rule of `podFailurePolicy`: it matches exit codes, conditions of the pod or reasons.

    `conditions` are pairs of type and status. Empty `types` mean all replica types.
    """

    action: FailureAction
    types: frozenset[str] = frozenset()
    codes: ExitCodes | None = None
    conditions: tuple[tuple[str, str], ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ElasticBounds:
    """Bounds of a job that may run with fewer replicas than it wants."""

    min_replicas: int
    max_replicas: int


@dataclass(frozen=True, slots=True)
class Dependent:
    """An object of a job besides its pods. `alternative` is its name where `name` is taken."""

    resource: Resource
    name: str
    manifest: Callable[[str], Manifest] = field(compare=False)
    """Builds the object under the given name."""
    lifetime: Lifetime = Lifetime.JOB
    generated: Generated = Generated.NOTHING
    alternative: str = ""
    is_optional: bool = False
    """The job does without it where it cannot be created, and the status does not mention it."""
    status_field: str = ""
    """The field of the job's status about this object; "" if the status has none."""


class WorkloadBuilder(Protocol):
    """Builds Kueue's Workload."""

    def __call__(self, name: str, counts: Mapping[str, int], replaces: str) -> Manifest:
        """`counts`: replicas by type. `replaces`: the Workload that this one replaces, or ""."""


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """The Workload that Kueue must admit before the job has pods (decision 170).

    `counts`: replicas by type, without types that never have any.
    """

    resource: Resource
    name: str
    queue: str
    counts: Mapping[str, int]
    manifest: WorkloadBuilder = field(compare=False)
    takes_over_unowned: bool = False
    """A Workload without owner is taken over: Kueue copied it from another cluster."""
    generated: Generated = Generated.NOTHING


class PodBuilder(Protocol):
    """Builds a replica's pod."""

    def __call__(
        self,
        key: ReplicaKey,
        attempt: int,
        *,
        pod_group: str,
        resumed: bool,
        joins: bool = False,
    ) -> Manifest:
        """The manifest, with name, labels, owner reference and `trainyard.dev/attempt`.

        `pod_group`: the PodGroup that the pod joins, or "". `resumed`: the job has been paused
        before, so its `resumeSpecs` apply. `joins`: other replicas run already.
        """


@dataclass(frozen=True)
class Workload:
    """What `lifecycle.plan` needs to know of a job."""

    kind: str
    api_version: str
    resource: Resource
    namespace: str
    name: str
    uid: str
    generation: int
    base: str
    types: tuple[ReplicaType, ...]
    pod_name: Callable[[ReplicaKey], str]
    build_pod: PodBuilder
    dependents: tuple[Dependent, ...]
    deciding_replica: ReplicaKey | None
    """The replica whose end decides: rank 0, worker-0 or the launcher. None: rules decide
    (decision 22)."""
    success_policy: SuccessPolicy = SuccessPolicy.RANK0
    success_rules: tuple[Rule, ...] = ()
    failure_rules: tuple[Rule, ...] = ()
    pod_failure_rules: tuple[FailureRule, ...] = ()
    scope: Scope = Scope.JOB
    survivors_stay: bool = False
    """In scope JOB: running replicas stay, and the launcher takes new ones in (decision 24)."""
    shared_budget: bool = True
    counts_backoff: bool = True
    """Whether status has `backoffCount`."""
    failure_condition_reports_success: bool = False
    """Whether the condition ReplicaFailure also reports the job's success."""
    restart_after_success: bool = True
    """Whether the policy Always restarts after exit 0 too; never the deciding replica."""
    fail_fast: bool = True
    """Any replica that failed and is not restarted fails the job (decision 23)."""
    resets_budget_on_progress: bool = False
    """Restarts are counted from 0 again once the job has made progress (decision 232)."""
    restart_judge: bool = False
    """A replica that fails again by the same lasting cause is not restarted (decision 229)."""
    clean_up: CleanUpPolicy = CleanUpPolicy.NONE
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    launch_timeout_seconds: int | None = None
    """How long the deciding replica may take to launch the others, once all run. None: it launches
    nothing, or does not say when it has (decision 101)."""
    hang: HangPolicy | None = None
    """None: the ranks are not observed, or hangs are not looked for."""
    in_place: int | None = None
    """Seconds that processes have to end before replicas restart in their pods. None: they restart
    in new pods (decision 283)."""
    node_check: bool = False
    """Whether replicas that start together check their nodes first (decision 295)."""
    paused: bool = False
    debug: bool = False
    elastic: ElasticBounds | None = None
    needs_gang: bool = False
    created: datetime | None = None
    request: WorkloadRequest | None = None
    """For Kueue: the job has pods only while this is admitted."""
    with_size: Callable[[int], Workload] | None = None
    """The same elastic job with this many replicas; None: the size is fixed."""
    min_running_replicas: int = 1
    """How many replicas must run for any of them to make progress (decision 113)."""
    warnings: tuple[str, ...] = ()
    """What the spec asks for and does not get; each is reported once, as an event."""
    spec_hash: str = ""
    revision: Callable[[ReplicaKey], str] = lambda key: ""
    """A pod whose annotation `trainyard.dev/revision` ("" if absent) differs is replaced, and no
    budget is spent."""

    @cached_property
    def keys(self) -> tuple[ReplicaKey, ...]:
        """All replicas wanted, by rank."""
        return tuple(ReplicaKey(t.name, i) for t in self.types for i in range(t.replicas))

    @cached_property
    def replicas_by_rank(self) -> tuple[tuple[ReplicaType, ReplicaKey, str], ...]:
        """Type, key and pod name of all replicas wanted, by rank."""
        return tuple((self.type_of[key.type], key, self.pod_name(key)) for key in self.keys)

    @cached_property
    def type_of(self) -> dict[str, ReplicaType]:
        """Replica types by name."""
        return {t.name: t for t in self.types}

    @property
    def replicas(self) -> int:
        """How many replicas are wanted."""
        return sum(t.replicas for t in self.types)


def objects(workload: Workload) -> Iterator[Manifest]:
    """All objects that the controller would create for a job that is not paused, pods last.

    Generated contents, such as keys, are missing.
    """
    pod_group = next((d.name for d in workload.dependents if d.resource.plural == "podgroups"), "")
    for dependent in workload.dependents:
        yield dependent.manifest(dependent.name)
    for key in workload.keys:
        yield workload.build_pod(key, 1, pod_group=pod_group, resumed=False)
