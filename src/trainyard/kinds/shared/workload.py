"""A job, whatever its kind, as the lifecycle sees it.

`describe()` turns a job into a `Workload`; from there on nothing asks for the kind. What differs
between kinds is data here (whose exit decides, what a budget covers), or is behind `Builder`.
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
# Decision 100.
LAUNCHED_PATH = "/t9k/run/launched"
"""A file in the container that launches others, once the training has begun."""


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
"""By which a program asks for its restart."""
RESTARTABLE_CODES = (130, 137, ASKS_FOR_RESTART, 143)
"""What `ExitCode` restarts: SIGINT, SIGKILL and SIGTERM besides."""


class SuccessPolicy(StrEnum):
    """Whose exit 0 makes a job without rules of its own succeed (decision 116)."""

    RANK0 = "Rank0"
    ALL_REPLICAS = "AllReplicas"


class FailureAction(StrEnum):
    """What follows from a failure that a rule of `podFailurePolicy` matches (decision 114)."""

    FAIL_JOB = "FailJob"
    IGNORE = "Ignore"
    """It starts again at no cost."""
    COUNT = "Count"
    """It is the replica's own: the restart policy decides."""
    RESTART = "Restart"
    """It starts again whatever the restart policy says, while there is budget."""


class HangAction(StrEnum):
    """What follows when the ranks of a job get nowhere (decision 225)."""

    EXPLAIN = "Explain"
    RESTART = "Restart"
    """The replica that is to blame has failed."""
    FAIL = "Fail"
    """The job has."""


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
    """Contents that are random and so are made by whoever creates the object."""

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
    """How long ranks may get nowhere, and what follows. `may_serve`: the job may answer requests,
    for which its ranks wait. `is_asked`: the user wants ranks observed even if that hides a
    PYTHONPATH of the image; `chains`: what starts the training puts the observer before it.
    `launched`: a launcher starts the ranks, and so means them to meet.
    `record` builds the object of a name that keeps what was found."""

    after_seconds: int
    action: HangAction
    record: Callable[[str, Mapping[str, str]], Manifest] = field(compare=False)
    may_serve: bool = False
    is_asked: bool = False
    chains: bool = False
    launched: bool = False


Rule = Mapping[str, tuple[int, ...]]
"""Replicas by type and indexes: a rule holds when all of them have the outcome."""


@dataclass(frozen=True, slots=True)
class ExitCodes:
    """Exit codes of a container (None: of the one that decides): one of `values`, or none of them
    if not `is_in`."""

    container: str | None
    is_in: bool
    values: frozenset[int]


@dataclass(frozen=True, slots=True)
class FailureRule:
    """A rule of `podFailurePolicy`: by exit codes, or by conditions (type and status) of the pod,
    or by reasons. No `types` means all."""

    action: FailureAction
    types: frozenset[str] = frozenset()
    codes: ExitCodes | None = None
    conditions: tuple[tuple[str, str], ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ElasticBounds:
    """A job that goes on with fewer replicas than it would like."""

    min_replicas: int
    max_replicas: int


@dataclass(frozen=True, slots=True)
class Dependent:
    """An object beside the pods. `alternative` is the name to use when `name` is taken."""

    resource: Resource
    name: str
    manifest: Callable[[str], Manifest] = field(compare=False)
    """Builds the object under the given name."""
    lifetime: Lifetime = Lifetime.JOB
    generated: Generated = Generated.NOTHING
    alternative: str = ""
    is_optional: bool = False
    """Whether the job does without it where it cannot be had; that is not told either."""
    told_as: str = ""
    """Field of the job's status about it, a viewer; "" for other objects."""


class WorkloadBuilder(Protocol):
    """Builds Kueue's Workload."""

    def __call__(self, name: str, counts: Mapping[str, int], replaces: str) -> Manifest:
        """`counts`: replicas by type; `replaces`: the Workload whose slice it is to replace, ""
        for none."""


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """What a job asks of Kueue before it has any pod, as an object that Kueue admits (decision
    170). `counts`: replicas by type; types that have none are left out, if they never will."""

    resource: Resource
    name: str
    queue: str
    counts: Mapping[str, int]
    manifest: WorkloadBuilder = field(compare=False)
    adopts: bool = False
    """One that nobody owns is taken over: Kueue has made it, in another cluster's name."""
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
        """`pod_group`: name of the PodGroup that the pod joins, "" for none. `resumed`: the job
        has been paused before, so that its `resumeSpecs` hold. `joins`: not all start with it. The
        manifest carries name, labels, owner reference and `trainyard.dev/attempt`."""


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
    # Decision 22.
    decides: ReplicaKey | None
    """The replica whose end decides (rank 0, worker-0, the launcher); None: rules decide."""
    success_policy: SuccessPolicy = SuccessPolicy.RANK0
    success_rules: tuple[Rule, ...] = ()
    failure_rules: tuple[Rule, ...] = ()
    pod_failure_rules: tuple[FailureRule, ...] = ()
    scope: Scope = Scope.JOB
    # Decision 24.
    survivors_stay: bool = False
    """Scope JOB: running replicas are not restarted along; the launcher takes newcomers in."""
    shared_budget: bool = True
    counts_backoff: bool = True
    """Whether status has `backoffCount`."""
    tells_all: bool = False
    """Whether the condition ReplicaFailure tells of the job's success too."""
    restart_after_success: bool = True
    """Whether the policy Always holds for an exit 0 too (never for the replica that decides)."""
    fail_fast: bool = True
    """Any replica that failed for good fails the job (decision 23)."""
    refills: bool = False
    """Restarts are counted anew once the job has got further (decision 232)."""
    restart_judge: bool = False
    """What fails again by one lasting cause fails for good (decision 229)."""
    clean_up: CleanUpPolicy = CleanUpPolicy.NONE
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    # Decision 101.
    launch_timeout_seconds: int | None = None
    """How long the replica that decides may take to launch the others, once all run; None: it
    launches nothing, or nothing is known of it."""
    hang: HangPolicy | None = None
    """None: its ranks are not observed, or not judged."""
    in_place: int | None = None
    """Its replicas restart in their pods, where their processes have so many seconds to end; None:
    in new pods (decision 283)."""
    checks_nodes: bool = False
    """Whether replicas that start together try their nodes first (decision 295)."""
    paused: bool = False
    debug: bool = False
    elastic: ElasticBounds | None = None
    needs_gang: bool = False
    created: datetime | None = None
    request: WorkloadRequest | None = None
    """Of a job that is handed to Kueue: it has pods only while that is admitted."""
    at_size: Callable[[int], Workload] | None = None
    """The same elastic job with so many replicas; None: its size is fixed."""
    together: int = 1
    """How many replicas must run for any of them to get on (decision 113)."""
    warnings: tuple[str, ...] = ()
    """What the spec asks for and does not get; told once, in events."""
    spec_hash: str = ""
    revision: Callable[[ReplicaKey], str] = lambda key: ""
    """Must equal the annotation `trainyard.dev/revision` of a replica's pod ("" where absent): a
    pod that was built from something else is replaced, at no cost."""

    @cached_property
    def keys(self) -> tuple[ReplicaKey, ...]:
        """All replicas wanted, by rank."""
        return tuple(ReplicaKey(t.name, i) for t in self.types for i in range(t.replicas))

    @cached_property
    def roster(self) -> tuple[tuple[ReplicaType, ReplicaKey, str], ...]:
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
    """Everything that the controller would create for a job that is not paused, pods last.

    Generated contents (keys) are left out.
    """
    pod_group = next((d.name for d in workload.dependents if d.resource.plural == "podgroups"), "")
    for dependent in workload.dependents:
        yield dependent.manifest(dependent.name)
    for key in workload.keys:
        yield workload.build_pod(key, 1, pod_group=pod_group, resumed=False)
