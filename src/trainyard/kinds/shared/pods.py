"""What all kinds do to a pod template to make it a replica's pod.

Templates are never changed in place, and never copied whole: a pod shares with its template what
it does not change, so that a pod of a large template costs little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.gang import Membership
from trainyard.kinds.shared.identity import WORKING_DIR, Identity
from trainyard.kinds.shared.settings import Settings
from trainyard.kinds.shared.workload import Manifest, ReplicaKey

Container = dict[str, Any]


def container_name(template: Mapping[str, Any], preferred: Sequence[str] = ()) -> str:
    """The container that trains: the first preferred name that is there, else the first one."""
    containers = template.get("spec", {}).get("containers") or [{}]
    present = [container.get("name", "") for container in containers]
    return next((name for name in preferred if name in present), str(present[0]))


def assemble(
    identity: Identity,
    key: ReplicaKey,
    name: str,
    template: Mapping[str, Any],
    settings: Settings,
    *,
    attempt: int,
    membership: Membership,
    extra_labels: Mapping[str, str] | None = None,
) -> Manifest:
    """A replica's pod: the template with identity, host name, search suffix and our policies.

    The host name is the pod's name. With the job's headless Service as subdomain and the Service's
    domain among the search suffixes, peers find each other by bare pod names
    (https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/).
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(identity, key, name, template, attempt, membership, extra_labels),
        "spec": _spec(identity, name, template.get("spec") or {}, settings, membership),
    }


def _metadata(
    identity: Identity,
    key: ReplicaKey,
    name: str,
    template: Mapping[str, Any],
    attempt: int,
    membership: Membership,
    extra_labels: Mapping[str, str] | None,
) -> dict[str, Any]:
    given = template.get("metadata") or {}
    annotations = {
        **(given.get("annotations") or {}),
        **membership.annotations,
        labels.ATTEMPT: str(attempt),
    }
    if identity.working_dir:
        annotations[WORKING_DIR] = identity.working_dir
    metadata = identity.metadata(name)
    metadata["labels"] = {
        **(given.get("labels") or {}),
        **metadata["labels"],
        labels.REPLICA_TYPE: key.type,
        labels.REPLICA_INDEX: str(key.ordinal),
        **membership.labels,
        **(extra_labels or {}),
    }
    metadata["annotations"] = annotations
    if finalizers := given.get("finalizers"):
        metadata["finalizers"] = finalizers
    return metadata


def _spec(
    identity: Identity,
    name: str,
    given: Mapping[str, Any],
    settings: Settings,
    membership: Membership,
) -> dict[str, Any]:
    spec = dict(given)
    spec["restartPolicy"] = "Never"
    spec["hostname"] = name
    spec["subdomain"] = identity.base
    dns = dict(given.get("dnsConfig") or {})
    suffix = f"{identity.base}.{identity.namespace}.svc.{settings.cluster_domain}"
    dns["searches"] = [*(dns.get("searches") or ()), suffix]
    spec["dnsConfig"] = dns
    if membership.scheduler_name:
        spec["schedulerName"] = membership.scheduler_name
    for field in ("initContainers", "containers"):
        if field in spec:
            spec[field] = [_with_last_words(container) for container in spec[field]]
    return spec


def _with_last_words(container: Container) -> Container:
    """Let the last log lines be the termination message, so that a failure can be told."""
    if "terminationMessagePolicy" in container:
        return container
    return {**container, "terminationMessagePolicy": "FallbackToLogsOnError"}


def change_container(pod: Manifest, name: str, **fields: Any) -> None:
    """Replace fields of one container of a pod that `assemble` made; None removes a field."""
    spec = pod["spec"]
    spec["containers"] = [
        _changed(container, fields) if container.get("name") == name else container
        for container in spec.get("containers", ())
    ]


def _changed(container: Container, fields: Mapping[str, Any]) -> Container:
    return {k: v for k, v in {**container, **fields}.items() if v is not None}


def put_env_first(pod: Manifest, env: Mapping[str, str]) -> None:
    """Add variables to all containers, before the user's, whose values win.

    Kubernetes expands `$(NAME)` only for variables further up the list.
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
