"""GenericJob: any set of pods; rules say when the set has succeeded or failed.

Nothing of a framework is put into the environment: variables in command, args and env values let
a replica learn its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainyard.kinds.generic.spec import FinishRule, GenericJob, GenericJobSpec, GenericReplicaSpec
from trainyard.kinds.generic.substitution import Variables
from trainyard.kinds.shared import labels, modes, names, network, pods, services
from trainyard.kinds.shared.digest import spec_hash
from trainyard.kinds.shared.gang import Gang, Membership, gang_of
from trainyard.kinds.shared.identity import Identity
from trainyard.kinds.shared.settings import GangBackend, Settings
from trainyard.kinds.shared.workload import (
    CleanUpPolicy,
    Dependent,
    Manifest,
    ReplicaKey,
    ReplicaType,
    RestartPolicy,
    Rule,
    Scope,
    Workload,
)


def describe(job: GenericJob, settings: Settings) -> Workload:
    """The workload of a valid job."""
    return _Description(job, settings).workload()


@dataclass(frozen=True)
class _Description:
    job: GenericJob
    settings: Settings

    @property
    def spec(self) -> GenericJobSpec:
        return self.job.spec

    @cached_property
    def identity(self) -> Identity:
        return Identity.of(self.job)

    @cached_property
    def by_type(self) -> dict[str, GenericReplicaSpec]:
        return {spec.type: spec for spec in self.spec.replica_specs}

    @cached_property
    def counts(self) -> dict[str, int]:
        return {spec.type: spec.replicas for spec in self.spec.replica_specs}

    @cached_property
    def ports(self) -> list[dict[str, Any]]:
        """Without node ports, which a server refuses in a ClusterIP Service."""
        ports = self.spec.service.ports if self.spec.service else ()
        return [{k: v for k, v in port.dump().items() if k != "nodePort"} for port in ports]

    @cached_property
    def gang(self) -> Gang | None:
        return gang_of(
            self.identity,
            self.settings.gang_backend,
            self.spec.scheduler,
            total=sum(self.counts.values()),
        )

    @cached_property
    def hosts(self) -> dict[ReplicaKey, str] | None:
        """The name of each replica's Service; None when there are no Services."""
        if not self.ports:
            return None
        return {
            key: network.host_of(self.pod_name(key), self.settings)
            if self.settings.plain_processes
            else self._service_name(key)
            for key in self._keys()
        }

    def pod_name(self, key: ReplicaKey) -> str:
        return names.pod_name(self.identity.base, key.type, key.ordinal)

    def _service_name(self, key: ReplicaKey) -> str:
        return names.replica_service_name(self.identity.name, key.type, key.ordinal)

    def _keys(self) -> list[ReplicaKey]:
        return [ReplicaKey(name, i) for name, count in self.counts.items() for i in range(count)]

    def workload(self) -> Workload:
        return Workload(
            kind=self.job.kind,
            api_version=self.job.api_version,
            resource=self.identity.resource,
            namespace=self.identity.namespace,
            name=self.identity.name,
            uid=self.identity.uid,
            generation=self.job.metadata.generation,
            base=self.identity.base,
            types=tuple(
                ReplicaType(
                    name=spec.type,
                    replicas=spec.replicas,
                    policy=RestartPolicy(spec.restart_policy.policy),
                    limit=spec.restart_policy.limit,
                )
                for spec in self.spec.replica_specs
            ),
            pod_name=self.pod_name,
            build_pod=self.build_pod,
            dependents=self._dependents(),
            decides=None,
            success_rules=tuple(_rule(rule) for rule in self.spec.success_rules),
            failure_rules=tuple(_rule(rule) for rule in self.spec.failure_rules),
            scope=Scope.REPLICA,
            shared_budget=False,
            counts_backoff=False,
            fail_fast=False,
            clean_up=CleanUpPolicy(self.spec.clean_up_policy),
            paused=self.spec.run_mode.pause.enabled,
            debug=self.spec.run_mode.debug.enabled,
            needs_gang=bool(self.gang and self.gang.backend is GangBackend.NONE),
            spec_hash=spec_hash(self.job),
        )

    def _dependents(self) -> tuple[Dependent, ...]:
        found = [services.headless(self.identity)]
        if self.ports:
            found += [
                services.for_replica(self.identity, key, self._service_name(key), self.ports)
                for key in self._keys()
            ]
        return (*found, *(self.gang.dependents() if self.gang else ()))

    def build_pod(
        self, key: ReplicaKey, attempt: int, *, pod_group: str, resumed: bool
    ) -> Manifest:
        """The pod of one replica; see `workload.PodBuilder`."""
        spec = self.by_type[key.type]
        replica_name = names.replica_service_name(self.identity.name, key.type, key.ordinal)
        pod = pods.assemble(
            self.identity,
            key,
            self.pod_name(key),
            spec.template,
            self.settings,
            attempt=attempt,
            membership=self.gang.membership(key.type, pod_group) if self.gang else Membership(),
            extra_labels={labels.GENERIC_JOB_REPLICA: replica_name},
        )
        self._change_mode(pod, key, resumed=resumed)
        self._substitute(pod, key)
        return pod

    def _change_mode(self, pod: Manifest, key: ReplicaKey, *, resumed: bool) -> None:
        first = pods.container_name(self.by_type[key.type].template)
        if debug := modes.debug_set(self.spec.run_mode, key.type):
            modes.idle(pod, first, debug)
            return
        resume = modes.resume_spec(self.spec.run_mode, key.type) if resumed else None
        if resume is None:
            return
        if resume.skip_init_container:
            modes.skip_init(pod)
        change: dict[str, Any] = {}
        if resume.command is not None:
            change["command"] = list(resume.command)
        if resume.args is not None:
            change["args"] = list(resume.args)
        pods.change_container(pod, first, **change)

    def _substitute(self, pod: Manifest, key: ReplicaKey) -> None:
        variables = Variables(
            key=key,
            replicas=self.counts,
            hosts=self.hosts,
            ports={port["name"]: self._number(port) for port in self.ports if "name" in port},
        )
        for field in ("initContainers", "containers"):
            if field in pod["spec"]:
                pod["spec"][field] = [variables.in_container(c) for c in pod["spec"][field]]

    def _number(self, port: dict[str, Any]) -> int:
        """The port that peers connect to: the Service's, or the pod's where no Service stands
        between them."""
        target = port.get("targetPort")
        if self.settings.plain_processes and isinstance(target, int):
            return target
        return int(port["port"])


def _rule(rule: FinishRule) -> Rule:
    return {name: tuple(indexes) for name, indexes in rule.items()}
