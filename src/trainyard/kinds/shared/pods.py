"""What all kinds do to a pod template to make it a replica's pod.

Templates are never changed in place, and never copied whole: a pod shares with its template what
it does not change, so that a pod of a large template costs little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.gang import Membership
from trainyard.kinds.shared.identity import Identity
from trainyard.kinds.shared.settings import Settings
from trainyard.kinds.shared.workload import Manifest, ReplicaKey

Container = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Replica:
    """All that a replica's pod is made from."""

    identity: Identity
    key: ReplicaKey
    name: str
    template: Mapping[str, Any]
    settings: Settings
    attempt: int
    membership: Membership
    labels: Mapping[str, str]
    """Those that only pods of this kind of job have."""
    revision: str = ""

    def assemble(self) -> Manifest:
        """The template with identity, host name, search suffix and our policies.

        The host name is the pod's name. With the job's headless Service as subdomain and the
        Service's domain among the search suffixes, peers find each other by bare pod names
        (https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/).
        """
        metadata, spec = self._metadata(), self._spec()
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _metadata(self) -> dict[str, Any]:
        given = self.template.get("metadata") or {}
        metadata = self.identity.metadata(self.name)
        metadata["labels"] = {
            **(given.get("labels") or {}),
            **metadata["labels"],
            labels.REPLICA_TYPE: self.key.type,
            labels.REPLICA_INDEX: str(self.key.ordinal),
            **self.membership.labels,
            **self.labels,
        }
        metadata["annotations"] = {
            **(given.get("annotations") or {}),
            **self.membership.annotations,
            labels.ATTEMPT: str(self.attempt),
            **self.identity.annotations(),
            **({labels.REVISION: self.revision} if self.revision else {}),
        }
        if finalizers := given.get("finalizers"):
            metadata["finalizers"] = finalizers
        return metadata

    def _spec(self) -> dict[str, Any]:
        base = self.identity.base
        given = self.template.get("spec") or {}
        spec = dict(given)
        # Decision 3.
        spec["restartPolicy"] = "Never"
        spec["hostname"] = self.name
        spec["subdomain"] = base
        dns = dict(given.get("dnsConfig") or {})
        suffix = f"{base}.{self.identity.namespace}.svc.{self.settings.cluster_domain}"
        dns["searches"] = [*(dns.get("searches") or ()), suffix]
        spec["dnsConfig"] = dns
        if self.membership.scheduler_name:
            spec["schedulerName"] = self.membership.scheduler_name
        for field in ("initContainers", "containers"):
            if field in spec:
                spec[field] = [_with_last_words(container) for container in spec[field]]
        return spec


def _with_last_words(container: Container) -> Container:
    """Let the last log lines be the termination message, so that a failure can be told."""
    # Decision 34.
    if "terminationMessagePolicy" in container:
        return container
    return {**container, "terminationMessagePolicy": "FallbackToLogsOnError"}


def change_container(pod: Manifest, name: str, **fields: Any) -> None:
    """Replace fields of one container of a pod that `Replica` made; None removes a field."""
    spec = pod["spec"]
    spec["containers"] = [
        _changed(container, fields) if container.get("name") == name else container
        for container in spec.get("containers", ())
    ]


def _changed(container: Container, fields: Mapping[str, Any]) -> Container:
    return {k: v for k, v in {**container, **fields}.items() if v is not None}


def put_env_first(pod: Manifest, env: Mapping[str, str]) -> None:
    """Add variables to all containers, before the user's, whose values win.

    Kubernetes expands `$(NAME)` only for variables further up the list (decision 14).
    """
    spec = pod["spec"]
    for field in ("initContainers", "containers"):
        if field in spec:
            spec[field] = [_with_env(container, env) for container in spec[field]]


def _with_env(container: Container, env: Mapping[str, str]) -> Container:
    given = container.get("env") or []
    taken = {entry.get("name") for entry in given}
    ours = [{"name": name, "value": value} for name, value in env.items() if name not in taken]
    return {**container, "env": [*ours, *given]}
