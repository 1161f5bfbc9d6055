"""The objects that install the operator on a cluster.

The only source of `trainyard manifests`, of the chart and of the kustomize bases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

import yaml

from trainyard.kinds import immutability_policies, server_compatibility
from trainyard.kinds.shared.job_settings import GangBackend
from trainyard.operator.config.operator_settings import OperatorSettings, ServiceSettings
from trainyard.operator.config.setting_types import PREFIX
from trainyard.operator.install.rbac_rules import (
    Rule,
    conditional_rules,
    lease_namespace_rules,
    rules_for,
    user_role_rules,
)
from trainyard.schema.dataclass import dataclass

NAME = "trainyard-operator"
PORT = 8080
SECURE_PORT = ServiceSettings().metrics_port
"""Served only with the setting metricsSecure."""
_PORTS = {"http": PORT, "https": SECURE_PORT}
CHANNEL_PORT = ServiceSettings().channel.port
SETTINGS_FILE = "settings.yaml"
_RBAC = "rbac.authorization.k8s.io"
_SETTINGS_FOLDER = "/etc/trainyard"
_NAME_LABEL = "app.kubernetes.io/name"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Install:
    """How the operator is installed."""

    image: str
    """An image that has the `trainyard` command on its PATH."""
    namespace: str
    replicas: Any = 2
    """How many operators run, of which one leads."""
    operator: OperatorSettings = field(default_factory=OperatorSettings)
    """What it reconciles, which decides on its permissions."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The content of the settings file."""
    name: str = NAME
    account: str = NAME
    """The service account's name."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """More fields of the pod's spec."""
    container: Mapping[str, Any] = field(default_factory=dict)
    """More fields of the container."""


def manifests(install: Install, server: tuple[int, int] | None = None) -> list[Object]:
    """Everything, in the order in which to apply it. What Kubernetes of version `server` does not
    know is left out."""
    return [
        *server_compatibility.crds_for(server=server),
        *(
            immutability_policies.policies()
            if server is None or server >= immutability_policies.SINCE
            else ()
        ),
        _object("v1", "Namespace", install.namespace),
        *user_roles(),
        *role_objects(install),
        *workload(install),
    ]


def workload(install: Install) -> list[Object]:
    """The operator's Deployment, with its account, settings and Services."""
    return [
        service_account(install),
        *([settings_file(install)] if install.settings else ()),
        deployment(install),
        service(install),
        *((reports_service(install),) if install.operator.has_channel else ()),
    ]


def user_roles() -> list[Object]:
    """Roles that extend the cluster's `view`, `edit` and `admin`, and one to read metrics."""
    reads = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    return [
        _object(f"{_RBAC}/v1", "ClusterRole", "trainyard-metrics", rules=[reads]),
        *(
            _object(
                f"{_RBAC}/v1",
                "ClusterRole",
                f"trainyard-{role}",
                labels={f"{_RBAC}/aggregate-to-{role}": "true"},
                rules=given,
            )
            for role, given in user_role_rules().items()
        ),
    ]


def role_objects(install: Install) -> list[Object]:
    """The operator's roles and bindings: in the cluster or its namespaces, and for its Lease."""
    # With `auto`, the operator may find any gang scheduler.
    if install.settings.get("gangScheduler", GangBackend.AUTO) == GangBackend.AUTO:
        needed = [each.rule for each in conditional_rules() if each.is_needed(install.operator)]
    else:
        needed = rules_for(install.operator)
    places = install.operator.namespaces
    asks = [review_binding(install)] if install.settings.get("metricsSecure") else []
    found = [
        *(role_and_binding(install, needed, install.name, place) for place in places or ("",)),
        role_and_binding(
            install,
            lease_namespace_rules(install.operator),
            f"{install.name}-lease",
            install.namespace,
        ),
    ]
    return [*(obj for pair in found for obj in pair), *asks]


def review_binding(install: Install) -> Object:
    """For metricsSecure: permission to review tokens and access, which needs a ClusterRole."""
    return _object(
        f"{_RBAC}/v1",
        "ClusterRoleBinding",
        f"{install.name}-reviews-{install.namespace}",
        roleRef={"apiGroup": _RBAC, "kind": "ClusterRole", "name": "system:auth-delegator"},
        subjects=[_subject(install)],
    )


def role_and_binding(
    install: Install, needed: list[Rule], name: str, namespace: str = ""
) -> tuple[Object, Object]:
    """A role and its binding to the operator's account; without a namespace, for the cluster."""
    scope = "" if namespace else "Cluster"
    return (
        _object(f"{_RBAC}/v1", f"{scope}Role", name, namespace, rules=needed),
        _object(
            f"{_RBAC}/v1",
            f"{scope}RoleBinding",
            name,
            namespace,
            roleRef={"apiGroup": _RBAC, "kind": f"{scope}Role", "name": name},
            subjects=[_subject(install)],
        ),
    )


def _subject(install: Install) -> Object:
    return {"kind": "ServiceAccount", "name": install.account, "namespace": install.namespace}


def service_account(install: Install) -> Object:
    """The operator's account."""
    return _object("v1", "ServiceAccount", install.account, install.namespace)


def settings_file(install: Install) -> Object:
    """The settings file, as a ConfigMap."""
    text = yaml.safe_dump(dict(install.settings), sort_keys=False)
    return _object("v1", "ConfigMap", install.name, install.namespace, data={SETTINGS_FILE: text})


def service(install: Install) -> Object:
    """The Service of the metrics; its name must not cause variables that look like settings."""
    return _object(
        "v1",
        "Service",
        f"{install.name}-metrics",
        install.namespace,
        labels={_NAME_LABEL: install.name},
        spec={
            "selector": {_NAME_LABEL: install.name},
            # Servers before 1.21 refuse a server-side apply without the protocol.
            "ports": [
                {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
                for name, port in _PORTS.items()
            ],
        },
    )


def reports_service(install: Install) -> Object:
    """The Service of the report channel; the leader writes its Endpoints."""
    port = {"name": "reports", "port": CHANNEL_PORT, "protocol": "TCP"}
    return _object(
        "v1",
        "Service",
        reports_name(install),
        install.namespace,
        labels={_NAME_LABEL: install.name},
        spec={"ports": [{**port, "targetPort": CHANNEL_PORT}]},
    )


def reports_name(install: Install) -> str:
    """The name of that Service; it must not cause variables that look like settings."""
    return f"{install.name}-reports"


def disruption_budget(install: Install) -> Object:
    """One disruption at a time, even with one replica, so that its node can be drained."""
    return _object(
        "policy/v1",
        "PodDisruptionBudget",
        install.name,
        install.namespace,
        spec={"maxUnavailable": 1, "selector": {"matchLabels": {_NAME_LABEL: install.name}}},
    )


def network_policy(install: Install, sources: Any = ()) -> Object:
    """Allow traffic to the endpoints, from `sources`, and to the report channel, from anywhere."""
    rule: Object = {"ports": [{"protocol": "TCP", "port": name} for name in _PORTS]}
    if sources:
        rule["from"] = sources
    reports: Object = {"ports": [{"protocol": "TCP", "port": "reports"}]}
    return _object(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        install.name,
        install.namespace,
        spec={
            "podSelector": {"matchLabels": {_NAME_LABEL: install.name}},
            "policyTypes": ["Ingress"],
            "ingress": [rule, reports],
        },
    )


def service_monitor(
    install: Install, interval: str = "30s", *, secure: bool = False, tls: Any = None
) -> Object:
    """For the Prometheus operator. `secure`: with the setting metricsSecure, where Prometheus shows
    its own token; `tls`: how it verifies the certificate; None: not at all."""
    endpoint: Object = {"port": "http", "path": "/metrics", "interval": interval}
    if secure:
        endpoint |= {
            "port": "https",
            "scheme": "https",
            "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
            "tlsConfig": tls or {"insecureSkipVerify": True},
        }
    return _object(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        install.name,
        install.namespace,
        spec={"selector": {"matchLabels": {_NAME_LABEL: install.name}}, "endpoints": [endpoint]},
    )


def anti_affinity(install: Install) -> Object:
    """An affinity that puts replicas on different nodes if possible."""
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {_NAME_LABEL: install.name}},
    }
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def deployment(install: Install) -> Object:
    """The Deployment of the operator."""
    labels = {_NAME_LABEL: install.name}
    volumes: list[Object] = [{"name": "tmp", "emptyDir": {}}]
    if install.settings:
        volumes.append({"name": "settings", "configMap": {"name": install.name}})
    pod = {
        "serviceAccountName": install.account,
        # A Service with this name would cause variables that look like settings.
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": anti_affinity(install),
        **install.pod,
        "containers": [_container(install)],
        "volumes": [*volumes, *install.pod.get("volumes", ())],
    }
    spec = {
        "replicas": install.replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": dict(labels)}, "spec": pod},
    }
    return _object("apps/v1", "Deployment", install.name, install.namespace, spec=spec)


def _container(install: Install) -> Object:
    mounts: list[Object] = [{"name": "tmp", "mountPath": "/tmp"}]
    command = ["trainyard", "operator", f"--port={PORT}", f"--channel-port={CHANNEL_PORT}"]
    if install.settings:
        mounts.append({"name": "settings", "mountPath": _SETTINGS_FOLDER, "readOnly": True})
        command.append(f"--config={_SETTINGS_FOLDER}/{SETTINGS_FILE}")
    # Its permissions for the Lease are in its own namespace.
    place = {"fieldRef": {"fieldPath": "metadata.namespace"}}
    home = f"{PREFIX}LEASE_NAMESPACE"
    env = [
        {"name": home, "valueFrom": place},
        {
            "name": f"{PREFIX}CHANNEL_ADDRESS",
            "value": f"{reports_name(install)}.$({home}).svc:{CHANNEL_PORT}",
        },
        {
            "name": f"{PREFIX}CHANNEL_ENDPOINT",
            "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
        },
    ]
    return {
        "name": "operator",
        "image": install.image,
        "command": command,
        "env": [*env, *install.container.get("env", ())],
        "ports": [
            {"name": name, "containerPort": port}
            for name, port in {**_PORTS, "reports": CHANNEL_PORT}.items()
        ],
        "livenessProbe": _probe("/healthz"),
        "readinessProbe": _probe("/readyz"),
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        **{name: value for name, value in install.container.items() if name not in _MERGED_FIELDS},
        "volumeMounts": [*mounts, *install.container.get("volumeMounts", ())],
    }


_MERGED_FIELDS = ("env", "volumeMounts")


def _probe(path: str) -> Object:
    return {"httpGet": {"path": path, "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 5}


def _object(
    api_version: str,
    kind: str,
    name: str,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
    **rest: Any,
) -> Object:
    metadata: Object = {"name": name, **({"namespace": namespace} if namespace else {})}
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def dump(objects: Iterable[Object]) -> str:
    """As YAML, without anchors, which not every reader of manifests supports."""
    return "".join(
        "---\n" + yaml.dump(each, Dumper=_NoAnchors, sort_keys=False, width=100) for each in objects
    )


class _NoAnchors(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True
