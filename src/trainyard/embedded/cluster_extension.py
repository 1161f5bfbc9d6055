"""What the composer of an embedded cluster hands in, so that the cluster itself knows no job.

The cluster serves Kubernetes' core resources, schedules pods and runs them. Everything that it
learns about kinds of objects beyond those comes through one frozen `Extension`: the custom kinds
that it serves, with their definitions and their admission, what counts as a queue, and which pods
have to start together. A cluster with `NO_EXTENSION` serves and runs plain pods.

`trainyard.composition.kinds_extension` holds the extension that knows trainyard's kinds. Nothing
under `trainyard.embedded` may import it, nor `kinds`, `manifest` or any other room that knows jobs
(a contract in pyproject.toml).

How to add to it: give `Extension`, or one of the classes below, a field with a default by which a
cluster without kinds works; say in its docstring what the cluster does with it; use it in the
cluster from `Resources.extension`, or from the settings of the part (`NodeSettings`,
`SchedulerSettings`); fill it in `kinds_extension`. What needs a slow import is a function, so that
a cluster is ready before anything that knows jobs has been imported (decision 335). Annotations
and texts that the cluster alone gives a meaning are no extension: they are constants of
`trainyard.kube.embedded_contract`, which clients read too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from trainyard.kube.resources import Resource
from trainyard.schema.dataclass import dataclass
from trainyard.schema.problems import Problem

Object = dict[str, Any]


class Admission(Protocol):
    """The verdict of a kind on an object."""

    @property
    def obj(self) -> Object:
        """The object as it is to be stored: defaults filled in, old spellings replaced."""

    @property
    def errors(self) -> Sequence[Problem]:
        """What refuses it."""

    @property
    def warnings(self) -> Sequence[Problem]:
        """What its author should know; it is stored all the same."""


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods of one object that are of no use without each other (decision 113)."""

    names: tuple[str, ...]
    """Names of all pods of the object, in the order in which they are to be placed."""
    size: int
    """How many of them, from the first on, have to run for any to get on; at least 2."""
    pods: tuple[Object, ...]
    """Manifests of the first `size` pods, for what they request; equal ones may be one object."""
    joins_alone: bool
    """A pod that starts again, once the object has started, does not wait for the others."""


@dataclass(frozen=True, slots=True)
class GangRules:
    """How the scheduler learns which pods of a kind's objects start together."""

    describe: Callable[[Object], Gang | None]
    """The gang of a stored object; None where its pods can start one by one."""
    replica_phases: Callable[[Object], Sequence[str]]
    """The phase of each replica that a stored object's status lists; empty without a status."""
    has_started: Callable[[Object], bool]
    """Whether all of its pods have started together once."""


@dataclass(frozen=True, slots=True)
class CustomKind:
    """A kind that is served from a CustomResourceDefinition."""

    resource: Resource
    load_definition: Callable[[], Object]
    """Its CustomResourceDefinition with one version, which has a structural schema. Printer
    columns, validation, and the paths of the subresource scale are read from it. Shared: never
    changed by the cluster."""
    admit: Callable[[Object, Object | None], Admission]
    """Validate an object that is to be created, or to replace the second one; neither is changed.
    It has been pruned by the schema of the definition."""
    short_names: tuple[str, ...] = ()
    scale_refusal: str = ""
    """The error for scaling an object without a number of replicas; "": the kind has no
    subresource scale."""
    queue_path: tuple[str, ...] = ()
    """The field in which its objects name a queue; (): they name none."""
    gang: GangRules | None = None
    """None: the scheduler does not look at its objects."""


@dataclass(frozen=True, slots=True)
class QueueKinds:
    """Which kinds and labels make queues and pod groups for the scheduler (decision 36).

    A queue's spec may have `quota.requests`, `priority`, `closed` and `maxDuration`; a group's
    `minMember`, `roles`, `priority` and `queue`. The cluster writes the status of both.
    """

    queues: Resource
    groups: Resource
    group_label: str
    """On a pod: the group that it belongs to."""
    queue_label: str
    """On a pod: the queue that it waits in."""
    role_label: str
    """On a pod of a group: its role, of which the group may need a number."""
    default_queue: str
    """The queue that every cluster has, and that a group belongs to which names none."""


@dataclass(frozen=True, slots=True)
class Extension:
    """All that a cluster is handed."""

    load_kinds: Callable[[], Sequence[CustomKind]] = tuple
    """The custom kinds, in the order in which discovery lists them."""
    queues: QueueKinds | None = None
    """None: there are no queues, and pods start when they fit."""
    owner_label: str = ""
    """On a pod: the UID of the object that it works for, as which pods are counted together."""
    scheduler_names: tuple[str, ...] = ()
    """Values of `schedulerName`, besides Kubernetes' own, by which the scheduler is meant."""
    internal_mount_paths: tuple[str, ...] = ()
    """Mount paths in pods that users did not ask for. Where nothing can be mounted, the warning
    about volumes leaves them out."""
    shown_status_texts: frozenset[str] = frozenset()
    """Texts of its kinds' statuses in which no program has a say, by path (`tasks.type`; `*` is any
    key of a map). Others are shown to those alone who may read logs."""
    own_message_reasons: frozenset[str] = frozenset()
    """Reasons of conditions and events whose messages quote no program."""
    alternatives: Mapping[str, str] = field(default_factory=dict)
    """By full name of a resource that the cluster does not act on (`jobs.batch`): what to do
    instead, where that is better than what the cluster itself would say."""


NO_EXTENSION = Extension()
"""A cluster of Kubernetes' core resources alone."""
