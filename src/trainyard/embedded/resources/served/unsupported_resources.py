"""Kinds of Kubernetes' own that nothing here acts on: they can be listed, and none can be created.

Some clients look for them (`kubectl apply --prune`) and stop where discovery does not know them.
Whoever creates one reads what to do instead, rather than that a path is unknown. Whoever composes
the cluster may know better (`Extension.alternatives`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainyard.embedded.cluster_extension import Extension
from trainyard.embedded.resources.resource import READ_VERBS, Served
from trainyard.kube.resources import Resource

_APPS, _RIGHTS = "apps", "rbac.authorization.k8s.io"
_BUDGETS = "poddisruptionbudgets"
_REQUESTS, _REQUEST = "certificatesigningrequests", "CertificateSigningRequest"
_AS_PODS = "run it as a Pod"
_NO_RIGHTS = "in-cluster clients of the API are not offered, so leave it out"
_NO_NETWORK = "every pod reaches the others and their Services, so leave it out"
_NO_STORAGE = "a folder stands for each PersistentVolumeClaim, so leave it out"
_NO_BUDGETS = "there is one node, and whoever drains it means to, so leave it out"
_NO_QUOTA = "every pod may use the whole machine, so leave it out"
_NO_PRIORITY = "pods start in the order in which they were created, so leave it out"
_NO_CERTIFICATES = "who uses the API has a token, so leave it out"
_OF_THE_CLUSTER = (
    *(_REQUEST, "ClusterRole", "ClusterRoleBinding"),
    *("PersistentVolume", "PriorityClass", "StorageClass"),
)


def _absent(
    group: str, version: str, plural: str, kind: str, short: str, alternative: str
) -> Served:
    return Served(
        Resource(group, version, plural, kind, namespaced=kind not in _OF_THE_CLUSTER),
        order=2000,
        short_names=(short,) if short else (),
        verbs=READ_VERBS,
        alternative=alternative,
    )


_ABSENT = (
    _absent("", "v1", "replicationcontrollers", "ReplicationController", "rc", _AS_PODS),
    _absent("", "v1", "persistentvolumes", "PersistentVolume", "pv", _NO_STORAGE),
    _absent("", "v1", "resourcequotas", "ResourceQuota", "quota", _NO_QUOTA),
    _absent("", "v1", "limitranges", "LimitRange", "limits", _NO_QUOTA),
    _absent(_APPS, "v1", "deployments", "Deployment", "deploy", _AS_PODS),
    _absent(_APPS, "v1", "statefulsets", "StatefulSet", "sts", _AS_PODS),
    _absent(_APPS, "v1", "daemonsets", "DaemonSet", "ds", _AS_PODS),
    _absent(_APPS, "v1", "replicasets", "ReplicaSet", "rs", _AS_PODS),
    _absent("batch", "v1", "jobs", "Job", "", _AS_PODS),
    _absent("batch", "v1", "cronjobs", "CronJob", "cj", _AS_PODS),
    _absent("certificates.k8s.io", "v1", _REQUESTS, _REQUEST, "csr", _NO_CERTIFICATES),
    _absent("networking.k8s.io", "v1", "ingresses", "Ingress", "ing", "use port-forward"),
    _absent("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", "netpol", _NO_NETWORK),
    _absent("policy", "v1", _BUDGETS, "PodDisruptionBudget", "pdb", _NO_BUDGETS),
    _absent(_RIGHTS, "v1", "roles", "Role", "", _NO_RIGHTS),
    _absent(_RIGHTS, "v1", "rolebindings", "RoleBinding", "", _NO_RIGHTS),
    _absent(_RIGHTS, "v1", "clusterroles", "ClusterRole", "", _NO_RIGHTS),
    _absent(_RIGHTS, "v1", "clusterrolebindings", "ClusterRoleBinding", "", _NO_RIGHTS),
    _absent("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", "pc", _NO_PRIORITY),
    _absent("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", "", _NO_STORAGE),
    _absent("storage.k8s.io", "v1", "storageclasses", "StorageClass", "sc", _NO_STORAGE),
)


def served(extension: Extension) -> Iterator[Served]:
    """All of them, with the alternatives that an extension knows."""
    unknown = extension.alternatives.keys() - {row.name for row in _ABSENT}
    if unknown:
        raise ValueError(f"alternatives to what is not refused: {', '.join(sorted(unknown))}")
    for row in _ABSENT:
        yield replace(row, alternative=extension.alternatives.get(row.name, row.alternative))
