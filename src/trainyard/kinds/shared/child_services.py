"""The Services of replicas and of viewers' pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.owner_identity import OwnerIdentity
from trainyard.kinds.shared.workload import Dependent, Manifest, ReplicaKey
from trainyard.kube.resources import SERVICES


def service(
    identity: OwnerIdentity,
    name: str,
    spec: Mapping[str, Any],
    marks: Mapping[str, str] | None = None,
) -> Dependent:
    """A Service of the pods of a job or viewer that have these labels, whether ready or not."""

    def manifest(actual: str) -> Manifest:
        selector = {labels.JOB_UID: identity.uid, **(marks or {})}
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": identity.metadata(actual),
            "spec": {**spec, "publishNotReadyAddresses": True, "selector": selector},
        }

    return Dependent(SERVICES, name, manifest)


def headless(identity: OwnerIdentity) -> Dependent:
    """The Service that gives every pod of a job a DNS name.

    Ranks must find each other before any of them is ready (decision 13).
    """
    return service(identity, identity.base, {"clusterIP": "None"})


def for_replica(
    identity: OwnerIdentity, key: ReplicaKey, name: str, ports: Sequence[dict[str, Any]]
) -> Dependent:
    """A ClusterIP Service of one replica; its address outlives the replica's pods (decision 13)."""
    marks = {labels.REPLICA_TYPE: key.type, labels.REPLICA_INDEX: str(key.ordinal)}
    return service(identity, name, {"ports": list(ports)}, marks)
