"""GenericJob: any set of pods; rules say when the set has succeeded or failed.

Nothing of a framework is put into the environment: variables in command, args and env values let
a replica learn its place: `$(type)`, `$(rank)`, `$(replicas[T])`, `$(service.T[N].host)` and
`$(service.port[P])`. Any other `$(NAME)` is Kubernetes' own syntax and left alone, and so is the
escaped `$$(` (decision 20).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from trainyard.kinds.generic import OWN_LABELS, REPLICA_LABEL
from trainyard.kinds.generic.spec import DIGITS, VARIABLE, FinishRule, GenericJob, GenericJobSpec
from trainyard.kinds.shared import child_names, child_services
from trainyard.kinds.shared.hang import observer_injection
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.pods import pod_assembly
from trainyard.kinds.shared.workload import (
    CleanUpPolicy,
    Dependent,
    HangPolicy,
    Manifest,
    ReplicaKey,
    ReplicaType,
    RestartPolicy,
    Rule,
    Scope,
    Workload,
)
from trainyard.kinds.shared.workload_factory import ReplicaStart, WorkloadFactory
from trainyard.schema.dataclass import dataclass


def describe(job: GenericJob, settings: Settings) -> Workload:
    """The workload of a valid job."""
    return _Factory(job, settings).workload()


class _Factory(WorkloadFactory[GenericJobSpec]):
    @cached_property
    def types(self) -> tuple[ReplicaType, ...]:
        return tuple(
            ReplicaType(
                name=spec.type,
                replicas=spec.replicas,
                policy=RestartPolicy(spec.restart_policy.policy),
                limit=spec.restart_policy.limit,
            )
            for spec in self.spec.replica_specs
        )

    @property
    def deciding_replica(self) -> None:
        """None: rules decide."""

    @cached_property
    def hang(self) -> HangPolicy | None:
        """None where its pods answer requests: to wait for those is no hang."""
        found = super().hang
        templates = (spec.template for spec in self.spec.replica_specs)
        if found is None or any(map(observer_injection.answers_requests, templates)):
            return None
        if not all(map(self._is_rendezvous_port, self.ports)):
            return None
        return replace(found, may_answer_requests=True)

    def _is_rendezvous_port(self, port: Mapping[str, Any]) -> bool:
        """Whether its ranks meet at a port of its Services. Other ports are for requests, and
        to wait for those is no hang (decision 293)."""
        values = {
            str(port.get("targetPort") or port["port"]),
            f"$(service.port[{port.get('name')}])",
        }
        variables = (v for name in self.counts for v in self.training(name).get("env") or ())
        return any(v.get("name") == "MASTER_PORT" and v.get("value") in values for v in variables)

    def template(self, replica_type: str) -> Mapping[str, Any]:
        return next(s.template for s in self.spec.replica_specs if s.type == replica_type)

    @cached_property
    def ports(self) -> list[dict[str, Any]]:
        """Without node ports, which a server refuses in a ClusterIP Service."""
        ports = self.spec.service.ports if self.spec.service else ()
        return [{k: v for k, v in port.dump().items() if k != "nodePort"} for port in ports]

    @cached_property
    def hosts(self) -> dict[ReplicaKey, str] | None:
        """The name of each replica's Service; None when there are no Services."""
        if not self.ports:
            return None
        name = self.host if self.settings.plain_processes else self._replica_name
        return {key: name(key) for key in self._keys()}

    def _replica_name(self, key: ReplicaKey) -> str:
        return child_names.replica_service_name(self.identity.name, key.type, key.ordinal)

    def _keys(self) -> list[ReplicaKey]:
        return [ReplicaKey(name, i) for name, count in self.counts.items() for i in range(count)]

    def workload(self) -> Workload:
        return replace(
            super().workload(),
            success_rules=tuple(_rule(rule) for rule in self.spec.success_rules),
            failure_rules=tuple(_rule(rule) for rule in self.spec.failure_rules),
            scope=Scope.REPLICA,
            shared_budget=False,
            fail_fast=False,
            clean_up=CleanUpPolicy(self.spec.clean_up_policy),
        )

    def extra_dependents(self) -> tuple[Dependent, ...]:
        keys = self._keys() if self.ports else ()
        return tuple(
            child_services.for_replica(self.identity, key, self._replica_name(key), self.ports)
            for key in keys
        )

    own_labels = OWN_LABELS

    def extra_labels(self, key: ReplicaKey) -> Mapping[str, str]:
        return {REPLICA_LABEL: self._replica_name(key)}

    @property
    def has_pod_dns(self) -> bool:
        """Not without `service`, by which no Service is to be created (decision 13)."""
        return bool(self.ports)

    @property
    def needs_peers(self) -> bool:
        """False without Services: replicas that cannot find each other work on their own (decision
        113)."""
        return bool(self.ports)

    def launch(self, pod: Manifest, key: ReplicaKey, start: ReplicaStart) -> None:
        if start.debug:  # no container of these pods is the one that trains (decision 29)
            for container in pod["spec"].get("containers") or ():
                pod_assembly.wait_for_developer(pod, container["name"], start.debug)
        else:
            super().launch(pod, key, start)
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


@dataclass(frozen=True, slots=True)
class Variables:
    """The values of variables in one replica. `hosts` is None without `spec.service`."""

    key: ReplicaKey
    replicas: Mapping[str, int]
    hosts: Mapping[ReplicaKey, str] | None
    ports: Mapping[str, int]

    def apply(self, text: str) -> str:
        """The text with every variable that can be resolved."""
        return VARIABLE.sub(self._value, text) if "$(" in text else text

    def _value(self, match: re.Match[str]) -> str:
        value: object = None
        if own := match["own"]:
            value = self.key.type if own == "type" else self.key.ordinal
        elif name := match["count"]:
            value = self.replicas.get(name)
        elif (name := match["host"]) and DIGITS.match(match["index"]):
            value = (self.hosts or {}).get(ReplicaKey(name, int(match["index"])))
        elif name := match["port"]:
            value = self.ports.get(name) if self.hosts is not None else None
        return match[0] if value is None else str(value)

    def in_container(self, container: Mapping[str, Any]) -> dict[str, Any]:
        """The container with variables replaced in command, args and env values."""
        changed = dict(container)
        for field in ("command", "args"):
            if field in changed:
                changed[field] = [self.apply(text) for text in changed[field]]
        if "env" in changed:
            changed["env"] = [
                {**entry, "value": self.apply(entry["value"])} if "value" in entry else entry
                for entry in changed["env"]
            ]
        return changed
