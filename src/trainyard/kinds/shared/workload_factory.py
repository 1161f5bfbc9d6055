"""Turns a job into a `Workload`: what all kinds share.

The `workload.py` of a kind derives its own `WorkloadFactory`, which states only what differs: the
replica types and their templates, which replica decides, how the training is launched.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, cast

from trainyard.kinds.kind import Kind
from trainyard.kinds.kind_registry import KINDS
from trainyard.kinds.shared import child_names, child_services, labels
from trainyard.kinds.shared.hang import observer_injection
from trainyard.kinds.shared.injected_programs import program_dependents
from trainyard.kinds.shared.job import Job, spec_hash
from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kinds.shared.owner_identity import OwnerIdentity
from trainyard.kinds.shared.pods import pod_assembly, pod_template_rules, shell_quoting
from trainyard.kinds.shared.pods.template_overrides import own_annotations, own_labels
from trainyard.kinds.shared.run_policy import (
    ElasticRange,
    ModeEntry,
    ReplicaDebugSet,
    ResumeSpec,
    RunMode,
    SchedulePolicy,
    workload_fields,
)
from trainyard.kinds.shared.scheduling import kueue_workload
from trainyard.kinds.shared.scheduling.gang_scheduling import Gang, Membership, gang_of
from trainyard.kinds.shared.workload import (
    Dependent,
    ElasticBounds,
    HangPolicy,
    Manifest,
    ReplicaKey,
    ReplicaType,
    Workload,
    WorkloadRequest,
)
from trainyard.schema.object_names import fnv1a64

_FIRST_PORT, _PORTS = 20000, 12000
"""The range of jobs' ports without namespaces. It ends below the ports that Linux gives to outgoing
connections (32768 to 60999)."""
Entry = TypeVar("Entry", bound=ModeEntry)


class Endpoint(NamedTuple):
    """A host name or address, and a port."""

    host: str
    port: int


class JobSpec(Protocol):
    """What the spec of every job has.

    Optional attributes are `run_policy` (all fields of a `RunPolicy`, or some of them) and, if the
    job can change its size, `elastic_range`.
    """

    @property
    def run_mode(self) -> RunMode: ...

    @property
    def scheduler(self) -> SchedulePolicy | None: ...


class ReplicaStart(NamedTuple):
    """How a replica starts: its entries in debug and resume mode, and whether it joins others."""

    debug: ReplicaDebugSet | None
    resume: ResumeSpec | None
    joins: bool = False


Spec = TypeVar("Spec", bound=JobSpec)


class WorkloadFactory(ABC, Generic[Spec]):
    """Builds the workload of one job; `Spec` is the model of the kind's spec."""

    def __init__(self, job: Job, settings: Settings, size: int | None = None) -> None:
        """`size`: the replicas of an elastic job; None: as many as it wants."""
        self.job = job
        self.settings = settings
        self._size = size

    @property
    def spec(self) -> Spec:
        """The spec, as the kind's own model."""
        return cast("Spec", self.job.spec)

    @property
    @abstractmethod
    def types(self) -> tuple[ReplicaType, ...]:
        """The replica types by rank."""

    @abstractmethod
    def template(self, replica_type: str) -> Mapping[str, Any]:
        """The pod template of a type."""

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Replicas wanted per type, by rank."""
        return {each.name: each.replicas for each in self.types}

    @cached_property
    def rank0(self) -> ReplicaKey:
        """The first replica."""
        return ReplicaKey(next((t for t, count in self.counts.items() if count), ""), 0)

    @property
    def deciding_replica(self) -> ReplicaKey | None:
        """See `Workload.deciding_replica`."""
        return self.rank0

    own_labels: ClassVar[Sequence[str]] = ()
    """Keys of labels that only this kind sets, and no template."""

    def extra_labels(self, key: ReplicaKey) -> Mapping[str, str]:
        """Labels of a replica's pod that only this kind sets."""
        return {}

    def run_mode_type(self, key: ReplicaKey, entries: Sequence[ModeEntry]) -> str:
        """The type by which entries of a run mode name a replica."""
        return key.type

    @property
    def has_pod_dns(self) -> bool:
        """Whether pods find each other by DNS, for which the job needs a Service."""
        return True

    @property
    def needs_peers(self) -> bool:
        """Whether a replica makes no progress without the others."""
        return True

    def extra_dependents(self) -> tuple[Dependent, ...]:
        """Objects besides the pods that only this kind creates."""
        return ()

    @property
    def programs(self) -> Mapping[str, str]:
        """Programs that start the training container's command, as `shipping.programs` takes
        them."""
        return {}

    def revision(self, key: ReplicaKey) -> str:
        """See `Workload.revision`."""
        return ""

    def launch(self, pod: Manifest, key: ReplicaKey, start: ReplicaStart) -> None:
        """Change an assembled pod so that it runs its part of the job."""
        container = self.container(key.type)
        if start.debug:
            pod_assembly.wait_for_developer(pod, container, start.debug)
        elif start.resume:
            pod_assembly.apply_resume(pod, container, start.resume)

    def workload(self) -> Workload:
        """The workload. A kind overrides this to replace fields."""
        identity, mode = self.identity, self.spec.run_mode
        found = Workload(
            kind=self.job.kind,
            api_version=self.job.api_version,
            resource=identity.resource,
            namespace=identity.namespace,
            name=identity.name,
            uid=identity.uid,
            generation=self.job.metadata.generation,
            base=identity.base,
            types=self.types,
            pod_name=self.pod_name,
            build_pod=self.build_pod,
            dependents=(
                *((child_services.headless(identity),) if self.has_pod_dns else ()),
                *program_dependents(
                    identity, self.settings, self.programs, is_observed=self.hang is not None
                ),
                *self.extra_dependents(),
                *(self.gang.dependents() if self.gang else ()),
            ),
            deciding_replica=self.deciding_replica,
            counts_backoff=self.kind.has_shared_budget,
            hang=self.hang,
            paused=mode.pause.enabled,
            debug=mode.debug.enabled,
            elastic=self.elastic,
            needs_gang=bool(self.gang and self.gang.backend is GangBackend.NONE),
            request=self._request,
            with_size=(lambda size: type(self)(self.job, self.settings, size).workload())
            if self.elastic
            else None,
            min_running_replicas=self._min_running_replicas,
            warnings=self._gang_warnings(self.gang) if self.gang else (),
            spec_hash=spec_hash(self.job),
            created=self.job.metadata.creation_timestamp,
            revision=self.revision,
        )
        return replace(found, **workload_fields(getattr(self.spec, "run_policy", None)))

    @property
    def _min_running_replicas(self) -> int:
        if self.spec.run_mode.debug.enabled or not self.needs_peers:
            return 1
        return self.elastic.min_replicas if self.elastic else self.total

    def _gang_warnings(self, gang: Gang) -> tuple[str, ...]:
        found = (gang.overridden(each.name, self.template(each.name)) for each in self.types)
        return (*gang.warnings, *chain.from_iterable(found))

    @property
    def kind(self) -> Kind:
        """The kind of the job."""
        return KINDS[self.job.kind]

    @cached_property
    def hang(self) -> HangPolicy | None:
        """See `Workload.hang`."""
        training = [self.training(each.name) for each in self.types]
        where = self.identity, self.settings
        return observer_injection.hang_policy_of(
            self.spec, *where, training, launched=self.starts_ranks
        )

    @property
    def starts_ranks(self) -> bool:
        """Whether a launcher of the job starts the ranks, and so can add the observer to them."""
        return False

    @cached_property
    def identity(self) -> OwnerIdentity:
        """The job's names."""
        return OwnerIdentity.of(self.job)

    @cached_property
    def elastic(self) -> ElasticBounds | None:
        """Bounds of the job's size; None when it is fixed."""
        bounds = self._range
        return ElasticBounds(max(bounds.minimum, 1), max(bounds.maximum, 1)) if bounds else None

    @property
    def elastic_total(self) -> int | None:
        """Replicas wanted of an elastic job: the target, moved into the bounds (decision 30).

        None: the size is fixed.
        """
        if self._range is None or self.elastic is None:
            return None
        if self._size is not None:
            return self._size
        return min(max(self._range.expected, self.elastic.min_replicas), self.elastic.max_replicas)

    @property
    def _range(self) -> ElasticRange | None:
        found: ElasticRange | None = getattr(self.spec, "elastic_range", None)
        return found

    @cached_property
    def total(self) -> int:
        """Replicas wanted."""
        return sum(self.counts.values())

    @cached_property
    def gang(self) -> Gang | None:
        """The gang, if the job asks to be scheduled all or none."""
        return gang_of(
            self.identity,
            self.settings,
            self.spec.scheduler,
            min_member=self.elastic.min_replicas if self.elastic else self.total,
            marks=self.job.metadata.labels,
        )

    @property
    def _request(self) -> WorkloadRequest | None:
        """The Workload for Kueue, if the job goes through it."""
        gang = self.gang
        if gang is None or gang.backend is not GangBackend.KUEUE:
            return None
        return kueue_workload.workload_request(
            self.identity,
            queue=gang.queue,
            priority=gang.priority,
            priority_class=gang.priority_class,
            types=self.types,
            is_elastic=self.elastic is not None,
            prebuilt=self.job.metadata.labels.get(kueue_workload.PREBUILT, ""),
            pod=lambda key: self.build_pod(key, 1, pod_group="", resumed=False),
            metadata=lambda name: self.template(name).get("metadata") or {},
        )

    def container(self, replica_type: str) -> str:
        """The name of the container that trains in pods of a type."""
        found = pod_template_rules.containers(self.template(replica_type))
        return self.kind.training_container(replica_type, [each.get("name", "") for each in found])

    def training(self, replica_type: str) -> Mapping[str, Any]:
        """The container that trains, as its template has it; empty if there is none."""
        return pod_template_rules.container_of(
            self.template(replica_type), self.container(replica_type)
        )

    def pod_name(self, key: ReplicaKey) -> str:
        """The name of a replica's pod."""
        return child_names.pod_name(self.identity.base, key.type, key.ordinal)

    def host_name(self, key: ReplicaKey) -> str:
        """The host name of a replica's pod: that of the pod."""
        return self.pod_name(key)

    @cached_property
    def domain(self) -> str:
        """The DNS domain of the job's pods."""
        return f"{self.identity.base}.{self.identity.namespace}.svc.{self.settings.cluster_domain}"

    def host(self, key: ReplicaKey) -> str:
        """The name or address by which peers reach a replica."""
        pod = self.pod_name(key)
        return child_names.loopback_address(pod) if self.settings.plain_processes else pod

    def endpoint(self, key: ReplicaKey) -> Endpoint:
        """Where a replica listens for its peers.

        Without namespaces all pods share the machine's network: each pod has a loopback address of
        its own, and each job a port of its own (decision 41).
        """
        port = self.settings.master_port
        if self.settings.plain_processes:
            port = _FIRST_PORT + fnv1a64(self.identity.uid.encode()) % _PORTS
        return Endpoint(self.host(key), port)

    def build_pod(
        self,
        key: ReplicaKey,
        attempt: int,
        *,
        pod_group: str,
        resumed: bool,
        joins: bool = False,
    ) -> Manifest:
        """The pod of one replica; see `workload.PodBuilder`.

        With the job's headless Service as subdomain and the Service's domain among the search
        suffixes, peers find each other by bare host names
        (https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/).
        """
        member = self.gang.membership(key.type, pod_group) if self.gang else Membership()
        start = self._start(key, resumed=resumed)._replace(joins=joins)
        pod = self._bare_pod(key, attempt, member)
        self.launch(pod, key, start)
        if start.debug:
            training = self._bare_pod(key, attempt, member)
            self.launch(training, key, ReplicaStart(None, start.resume))
            if commands := self.replaced_commands(key, training, pod):
                pod["metadata"]["annotations"][labels.REPLACED] = json.dumps(commands)
        return pod

    def _bare_pod(self, key: ReplicaKey, attempt: int, member: Membership) -> Manifest:
        metadata, spec = self._metadata(key, attempt, member), self._pod_spec(key, member)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        pod_assembly.put_env_first(pod, pod_assembly.default_env(attempt))
        mine = self.identity, self.settings
        return observer_injection.with_observer(
            pod, self.container(key.type), *mine, attempt, self.hang
        )

    def replaced_commands(
        self, key: ReplicaKey, training: Manifest, debug: Manifest
    ) -> dict[str, str]:
        """By container: the shell lines of the training pod that the debug pod does not run
        (decision 109)."""
        given = pod_template_rules.containers(self.template(key.type))
        return shell_quoting.replaced_commands(
            pod_template_rules.containers(training), pod_template_rules.containers(debug), given
        )

    def _metadata(self, key: ReplicaKey, attempt: int, member: Membership) -> dict[str, Any]:
        given = self.template(key.type).get("metadata") or {}
        metadata = self.identity.metadata(self.pod_name(key))
        metadata["labels"] = {
            **own_labels(given.get("labels") or {}, self.own_labels),
            **metadata["labels"],
            labels.REPLICA_TYPE: key.type,
            labels.REPLICA_INDEX: str(key.ordinal),
            **member.labels,
            **self.extra_labels(key),
        }
        revision = self.revision(key)
        metadata["annotations"] = {
            **own_annotations(given.get("annotations") or {}),
            **member.annotations,
            labels.ATTEMPT: str(attempt),
            **self.identity.annotations,
            **({labels.REVISION: revision} if revision else {}),
        }
        if finalizers := given.get("finalizers"):
            metadata["finalizers"] = finalizers
        return metadata

    def _pod_spec(self, key: ReplicaKey, member: Membership) -> dict[str, Any]:
        spec = dict(self.template(key.type).get("spec") or {})
        # The controller restarts replicas, not the kubelet (decision 3).
        spec["restartPolicy"] = "Never"
        spec["hostname"] = self.host_name(key)
        if self.has_pod_dns:
            spec["subdomain"] = self.identity.base
            dns = dict(spec.get("dnsConfig") or {})
            dns["searches"] = [*(dns.get("searches") or ()), self.domain]
            spec["dnsConfig"] = dns
        spec |= {**member.spec, **{k: spec[k] for k in ("priorityClassName",) if spec.get(k)}}
        for field in ("initContainers", "containers"):
            if field in spec:
                spec[field] = [
                    pod_assembly.with_log_as_termination_message(container)
                    for container in spec[field]
                ]
        return spec

    def _start(self, key: ReplicaKey, *, resumed: bool) -> ReplicaStart:
        debug, resume = self.spec.run_mode.debug, self.spec.run_mode.pause.resume_specs
        return ReplicaStart(
            (self._entry(key, debug.replica_specs) or ReplicaDebugSet(type=key.type))
            if debug.enabled
            else None,
            self._entry(key, resume) if resumed else None,
        )

    def _entry(self, key: ReplicaKey, entries: Sequence[Entry]) -> Entry | None:
        named = self.run_mode_type(key, entries)
        return next((entry for entry in entries if entry.type == named), None)
