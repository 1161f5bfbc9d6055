"""Objects with fields that came after Kubernetes 1.20, or are guarded by feature gates."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from tests.differential.asking import Ask
from tests.differential.cases import CLAIM, COLLECTIONS, JSON, POD, SERVICE, changed
from tests.differential.objects import (
    EMPTY,
    C,
    V,
    affinity,
    first,
    mount,
    probe,
    projected,
    source,
    spread,
    volume,
)
from tests.differential.templates import GOOD, REFUSABLE
from trainyard.manifest.reader import read
from trainyard.schema.problems import Severity

REFUSED = "refused"
_LABELS = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}
_HARD = "required"
_FILE = {"volumeName": "v", "path": "p", "key": "k"}
_PODS: list[dict[str, Any]] = [
    {f"{C}resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]},
    first(restartPolicy="Always"),
    first(restartPolicy="Always", readinessProbe={"exec": {"command": ["a"]}}),
    first(restartPolicy="Never"),
    {f"{C}restartPolicy": "Never"},
    {
        f"{C}restartPolicy": "Never",
        f"{C}restartPolicyRules": [
            {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}
        ],
    },
    {V: EMPTY, **source(fileKeyRef=_FILE)},
    {"spec.os": {"name": "linux"}, f"{C}lifecycle": {"stopSignal": "SIGUSR1"}},
    {f"{C}lifecycle": {"preStop": {"sleep": {"seconds": 1}}}},
    affinity("podAffinity", _HARD, {**_LABELS, "matchLabelKeys": ["c"]}),
    affinity("podAntiAffinity", _HARD, {**_LABELS, "mismatchLabelKeys": ["c"]}),
    affinity("podAffinity", _HARD, {**_LABELS, "namespaceSelector": {}}),
    {"spec.securityContext": {"seLinuxChangePolicy": "Recursive"}},
    {"spec.securityContext": {"supplementalGroupsPolicy": "Strict"}},
    {"spec.securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
    {"spec.hostUsers": False},
    {"spec.hostnameOverride": "a.b"},
    {"spec.os": {"name": "linux"}},
    {
        "spec.resourceClaims.0": {"name": "r", "resourceClaimName": "c"},
        f"{C}resources": {"claims": [{"name": "r", "request": "a"}]},
    },
    {"spec.resourceClaims.0": {"name": "r", "resourceClaimTemplateName": "c"}},
    {"spec.resources": {"limits": {"cpu": "1"}}},
    {"spec.schedulingGates.0": {"name": "a.b/c"}},
    {"spec.schedulingGroup": {"podGroupName": "a"}},
    {"spec.evictionResponders.0": {"name": "a.b/c", "priority": 1}},
    probe(bare=True, grpc={"port": 80}),
    probe("readinessProbe", bare=True, grpc={"port": 80, "mode": "TLS"}),
    probe("startupProbe", bare=True, httpGet={"port": 80, "protocol": "HTTP2"}),
    probe(terminationGracePeriodSeconds=3),
    {f"{C}securityContext": {"procMount": "Unmasked"}, "spec.hostUsers": False},
    {f"{C}securityContext": {"procMount": "Default"}},
    {f"{C}securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
    {f"{C}securityContext": {"windowsOptions": {"hostProcess": False}}},
    spread(labelSelector={}, matchLabelKeys=["a"]),
    spread(minDomains=2),
    spread(nodeAffinityPolicy="Honor"),
    spread(nodeTaintsPolicy="Honor"),
    volume(ephemeral={"volumeClaimTemplate": {"spec": CLAIM["spec"]}}),
    volume(image={"reference": "a:b"}),
    mount(readOnly=True, recursiveReadOnly="Enabled"),
    mount(bindMountOptions=["noexec"]),
    volume(emptyDir={"mode": 448}),
    volume(configMap={"name": "c", "defaultUser": 1, "items": [{"key": "a", "path": "b"}]}),
    volume(configMap={"name": "c", "items": [{"key": "a", "path": "b", "user": 1}]}),
    volume(secret={"secretName": "c", "defaultUser": 1}),
    volume(
        downwardAPI={
            "defaultUser": 1,
            "items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}],
        }
    ),
    volume(
        downwardAPI={
            "items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}, "user": 1}]
        }
    ),
    projected({"secret": {"name": "s"}}, defaultUser=1),
    projected({"serviceAccountToken": {"path": "p", "user": 1}}),
    projected({"clusterTrustBundle": {"name": "s", "path": "p"}}),
    projected({"clusterTrustBundle": {"name": "s", "path": "p", "user": 1}}),
    projected(
        {
            "podCertificate": {
                "signerName": "a.b/c",
                "keyType": "ED25519",
                "credentialBundlePath": "p",
                "userAnnotations": {"a.b/c": "d"},
                "user": 1,
            }
        }
    ),
    {f"{C}env.0": {"name": "1A", "value": "b"}},
    {f"{C}env.0": {"name": "A B", "value": "b"}},
    {f"{C}envFrom.0": {"prefix": "1", "secretRef": {"name": "c"}}},
    source(fieldRef={"fieldPath": "status.hostIPs"}),
    source(resourceFieldRef={"resource": "limits.hugepages-2Mi"}),
    {"spec.tolerations.0": {"key": "a", "operator": "Gt", "value": "1"}},
    {"spec.dnsConfig": {"searches": ["a_b.c", "d"]}},
    {"spec.dnsConfig": {"searches": ["."]}},
    # What a server of 1.20 has already.
    {"spec.setHostnameAsFQDN": True, "spec.enableServiceLinks": False},
    {"spec.securityContext": {"fsGroup": 1, "fsGroupChangePolicy": "Always"}},
    {"spec.securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
    mount(subPathExpr="$(A)"),
    probe("startupProbe"),
]
_SERVICES: list[dict[str, Any]] = [
    {"spec.type": "LoadBalancer", "spec.allocateLoadBalancerNodePorts": False},
    {"spec.type": "LoadBalancer", "spec.loadBalancerClass": "a.b/c"},
    {"spec.internalTrafficPolicy": "Local"},
    {"spec.ipFamilyPolicy": "SingleStack"},
    {"spec.ipFamilies": ["IPv4"]},
    {"spec.trafficDistribution": "PreferClose"},
    {"spec.trafficDistribution": "PreferSameNode"},
    {"spec.ports.0.appProtocol": "http"},
]
_CLAIMS: list[dict[str, Any]] = [
    {"spec.volumeAttributesClassName": "c"},
    {"spec.accessModes": ["ReadWriteOncePod"]},
    {"spec.dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "c"}},
    {"spec.dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "c", "namespace": "n"}},
    {"spec.volumeMode": "Block"},
]
SAMPLES = {
    f"{kind} {changes}": (kind, changed(base, changes))
    for kind, base, of_kind in (
        ("pod", POD, [*_PODS, *GOOD]),
        ("service", SERVICE, _SERVICES),
        ("claim", CLAIM, _CLAIMS),
    )
    for changes in of_kind
}
"""By name: which collection, and the object."""
REFUSED_SAMPLES = {f"pod {changes}": ("pod", changed(POD, changes)) for changes in REFUSABLE}
"""Of these, a server refuses all whose fields it does not drop."""


Fate = str | list[str]
"""What a server makes of an object: that it is refused, or the fields that it drops."""


def fate(ask: Ask, namespace: str, kind: str, obj: dict[str, Any]) -> Fate | None:
    """Of a sample; None where the server is to be asked again."""
    path, _ = COLLECTIONS[kind]
    code, text = ask("POST", path.format(ns=namespace), json.dumps(obj).encode(), JSON)
    told = json.loads(text)
    if code == HTTPStatus.CREATED:
        return sorted(_lost(obj["spec"], told["spec"], "spec"))
    if told["reason"] == "ServerTimeout":
        return None
    assert code == HTTPStatus.UNPROCESSABLE_ENTITY, (obj, told)
    return REFUSED


def _lost(given: Any, kept: Any, path: str) -> list[str]:
    """The outermost fields of an object that another has no more, or has otherwise."""
    if isinstance(given, dict) and isinstance(kept, dict):
        pairs = [(each, kept.get(key), f"{path}.{key}") for key, each in given.items()]
    elif isinstance(given, list) and isinstance(kept, list):
        pairs = [
            (each, kept[index] if index < len(kept) else None, f"{path}[{index}]")
            for index, each in enumerate(given)
        ]
    else:
        return [] if given == kept else [path]
    return [place for pair in pairs for place in _lost(*pair)]


def job(pod: dict[str, Any]) -> dict[str, Any]:
    """One whose pods are to be like a pod."""
    metadata = {key: pod["metadata"][key] for key in ("annotations",) if key in pod["metadata"]}
    template = {"metadata": metadata, "spec": pod["spec"]}
    return {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": "GenericJob",
        "metadata": {"name": "j"},
        "spec": {"replicaSpecs": [{"type": "a", "replicas": 1, "template": template}]},
    }


def judged(kind: str, obj: dict[str, Any], version: tuple[int, int]) -> Fate:
    """The same by what is said of a manifest; pods are templates of a job there."""
    prefix = ""
    if kind == "pod":
        prefix = "spec.replicaSpecs[0].template."
        obj = job(obj)
    found = read(json.dumps(obj), server=version).problems
    if any(problem.severity is Severity.ERROR for problem in found):
        return REFUSED
    dropped = [p.where.removeprefix(prefix) for p in found if "is dropped by" in p.message]
    return sorted(dropped)
