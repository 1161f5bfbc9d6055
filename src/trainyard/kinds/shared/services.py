"""The Services by which replicas find each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainyard.kinds.shared import labels
from trainyard.kinds.shared.identity import Identity
from trainyard.kinds.shared.workload import Dependent, Manifest, ReplicaKey
from trainyard.kube.resources import SERVICES


def headless(identity: Identity) -> Dependent:
    """The one Service of a job: it gives every pod a name, ready or not.

    Ranks must find each other before any of them is ready (decision 13).
    """

    def manifest(name: str) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": identity.metadata(name),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {labels.JOB_UID: identity.uid},
            },
        }

    return Dependent(SERVICES, identity.base, manifest)


def for_replica(
    identity: Identity, key: ReplicaKey, name: str, ports: Sequence[dict[str, Any]]
) -> Dependent:
    """A ClusterIP Service in front of one replica; its address outlives the replica's pods."""
    # Decision 13.

    def manifest(actual: str) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": identity.metadata(actual),
            "spec": {
                "ports": list(ports),
                "publishNotReadyAddresses": True,
                "selector": {
                    labels.JOB_UID: identity.uid,
                    labels.REPLICA_TYPE: key.type,
                    labels.REPLICA_INDEX: str(key.ordinal),
                },
            },
        }

    return Dependent(SERVICES, name, manifest)
