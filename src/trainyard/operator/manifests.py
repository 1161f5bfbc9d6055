"""What a cluster needs to run the operator, as objects to apply.

Only rights that the controller uses; what it watches is what it may see.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from trainyard.kinds import crds, policies
from trainyard.kinds.shared import kueue
from trainyard.kinds.shared.settings import GangBackend
from trainyard.kinds.table import JOB_KINDS, Kind
from trainyard.lifecycle.observed import observed_resources
from trainyard.operator.planners import served_kinds
from trainyard.operator.settings import OperatorSettings

NAME = "trainyard-operator"
PORT = 8080
_OWN = ["create", "delete", "get", "list", "patch", "watch"]
_RBAC = "rbac.authorization.k8s.io"

Object = dict[str, Any]


def manifests(
    *, image: str, namespace: str, replicas: int, server: tuple[int, int] | None = None
) -> list[Object]:
    """Everything, in the order in which to apply it.

    `image` must hold trainyard with its command on the PATH; `replicas` operators run, of which
    one works. `server` is the version of Kubernetes; what it does not know is left out.
    """
    labels = {"app.kubernetes.io/name": NAME}
    return [
        *crds.crds_for(server=server),
        *(policies.policies() if server is None or server >= policies.SINCE else ()),
        _object("v1", "Namespace", namespace),
        _object("v1", "ServiceAccount", NAME, namespace),
        _object(f"{_RBAC}/v1", "ClusterRole", NAME, rules=_rules()),
        _object(
            f"{_RBAC}/v1",
            "ClusterRoleBinding",
            NAME,
            roleRef={"apiGroup": _RBAC, "kind": "ClusterRole", "name": NAME},
            subjects=[{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}],
        ),
        _object("apps/v1", "Deployment", NAME, namespace, spec=_spec(image, replicas, labels)),
    ]


def _object(api_version: str, kind: str, name: str, namespace: str = "", **rest: Any) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def _rules() -> list[Object]:
    # Other gang schedulers' groups, which jobs are handed to with --gang-scheduler.
    gangs = ["scheduling.volcano.sh", "scheduling.x-k8s.io"]
    return [
        *_rules_of(OperatorSettings(), GangBackend.T9K),
        _rule(gangs, ["podgroups"], _OWN),
        *_KUEUE,
        _rule([kueue.GROUP], [kueue.WORKLOADS.plural], _OWN),
        _rule([""], ["namespaces", "nodes"], ["list", "watch"]),
        LEASE_RULE,
    ]


def rules(settings: OperatorSettings) -> list[Object]:
    """What an operator with these settings needs, but for its Lease; of some namespaces, in each
    of them."""
    apart = ["nodes"] if not settings.namespaces else []
    if settings.namespace_selector:
        apart.append("namespaces")
    backend = settings.lifecycle.gang_backend
    needed = [*_rules_of(settings, backend), *(_KUEUE if backend is GangBackend.KUEUE else ())]
    return [*needed, *([_rule([""], apart, ["list", "watch"])] if apart else ())]


def _rules_of(settings: OperatorSettings, backend: GangBackend) -> list[Object]:
    observed: dict[str, list[str]] = {}
    for resource in observed_resources(backend):
        observed.setdefault(resource.group, []).append(resource.plural)
    return [
        *(
            _rule([group], names, ["delete", "get", "list", "watch"])
            for group, names in _by_group(JOB_KINDS.values())
        ),
        *_own_status(settings),
        *(_rule([group], plurals, _OWN) for group, plurals in observed.items()),
        _rule([""], ["events"], ["create", "list", "patch", "update"]),
    ]


def _by_group(kinds: Iterable[Kind]) -> Iterable[tuple[str, list[str]]]:
    """Groups, and the plurals of the kinds in each: a kind from outside may have one of its own."""
    plurals: dict[str, list[str]] = {}
    for kind in kinds:
        plurals.setdefault(kind.group, []).append(kind.plural)
    return ((group, sorted(names)) for group, names in plurals.items())


def _own_status(settings: OperatorSettings) -> Iterator[Object]:
    """Rights to what is looked after itself: to tell its state, and to own what it consists of."""
    for group, names in _by_group(served_kinds(settings)):
        yield _rule([group], [f"{name}/status" for name in names], ["update"])
        # Setting an owner that blocks deletion takes the right to its finalizers
        # (admission plugin OwnerReferencesPermissionEnforcement).
        yield _rule([group], [f"{name}/finalizers" for name in names], ["update"])


def _rule(groups: list[str], resources: list[str], verbs: list[str]) -> Object:
    return {"apiGroups": groups, "resources": resources, "verbs": list(verbs)}


LEASE_RULE = _rule(["coordination.k8s.io"], ["leases"], ["create", "get", "update"])
"""Where the Lease is."""


# Beside the Workloads themselves: their state, where their pods run, and what classes are worth.
_KUEUE = [
    _rule([kueue.GROUP], [f"{kueue.WORKLOADS.plural}/status"], ["patch"]),
    _rule([kueue.GROUP], [kueue.FLAVORS.plural], ["list", "watch"]),
    _rule([kueue.GROUP], [kueue.PRIORITY_CLASSES.plural], ["get"]),
]


def _spec(image: str, replicas: int, labels: dict[str, str]) -> Object:
    container = {
        "name": "operator",
        "image": image,
        "command": ["trainyard", "operator"],
        "args": [f"--port={PORT}", "--lease-namespace=$(NAMESPACE)"],
        "env": [
            {
                "name": "NAMESPACE",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
            }
        ],
        "ports": [{"name": "http", "containerPort": PORT}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    return {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": dict(labels)},
            "spec": {
                "serviceAccountName": NAME,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 65532,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [container],
            },
        },
    }
