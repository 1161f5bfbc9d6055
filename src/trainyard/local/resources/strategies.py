"""What is particular to one built-in kind when it is created, updated or deleted.

Each rule is Kubernetes' own (the `PrepareForCreate` and friends of its registries), reduced to
what an embedded cluster needs. Kinds without an entry have no particular rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainyard.local.failures import Cause, invalid

Object = dict[str, Any]

DEFAULT_GRACE_SECONDS = 30


def _create_pod(pod: Object) -> None:
    pod["status"] = {"phase": "Pending", "qosClass": _qos_class(pod)}
    spec = pod.setdefault("spec", {})
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("enableServiceLinks", True)
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("imagePullPolicy", "IfNotPresent")
        container.setdefault("resources", {})
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")


def _qos_class(pod: Object) -> str:
    containers = (pod.get("spec") or {}).get("containers") or []
    asked = [container.get("resources") or {} for container in containers]
    limits = [resources.get("limits") or {} for resources in asked]
    requests = [resources.get("requests") or {} for resources in asked]
    if not any(limits) and not any(requests):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= limit.keys()
        and all(request.get(name, limit[name]) == limit[name] for name in ("cpu", "memory"))
        for limit, request in zip(limits, requests, strict=True)
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _update_pod(new: Object, old: Object) -> None:
    """Of a pod's spec only images, deadline and grace may change; a node is chosen once."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    frozen = {
        key
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
        and key
        not in {
            "activeDeadlineSeconds",
            "terminationGracePeriodSeconds",
            "tolerations",
            "containers",
            "initContainers",
            "schedulingGates",
        }
    }
    if "nodeName" in frozen and not before.get("nodeName"):
        frozen.remove("nodeName")
    if frozen:
        raise invalid(
            "Pod",
            "",
            new["metadata"]["name"],
            [
                Cause(f"spec.{key}", "Forbidden: pod updates may not change this field")
                for key in sorted(frozen)
            ],
        )


def _create_namespace(namespace: Object) -> None:
    namespace.setdefault("spec", {})["finalizers"] = ["kubernetes"]
    namespace["status"] = {"phase": "Active"}
    labels = namespace["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = namespace["metadata"]["name"]


def _create_service(service: Object) -> None:
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    service["status"] = {"loadBalancer": {}}
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _update_service(new: Object, old: Object) -> None:
    before, after = old.get("spec") or {}, new.setdefault("spec", {})
    address = before.get("clusterIP")
    if address and after.setdefault("clusterIP", address) != address:
        raise invalid(
            "Service",
            "",
            new["metadata"]["name"],
            [Cause("spec.clusterIP", "Invalid value: field is immutable")],
        )
    if after.get("type") == before.get("type") != "ClusterIP":
        _keep_node_ports(after, before)


def _keep_node_ports(after: Object, before: Object) -> None:
    """A manifest that is applied again does not say which ports it was given."""
    known = {port.get("port"): port.get("nodePort") for port in before.get("ports") or ()}
    for port in after.get("ports") or ():
        if not port.get("nodePort") and known.get(port.get("port")):
            port["nodePort"] = known[port["port"]]


def _create_claim(claim: Object) -> None:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    claim["status"] = {"phase": "Pending"}


def _create_secret(secret: Object) -> None:
    secret.setdefault("type", "Opaque")
    _fold_string_data(secret)


def _update_secret(new: Object, old: Object) -> None:
    new.setdefault("type", old.get("type", "Opaque"))
    _fold_string_data(new)
    if new["type"] != old.get("type", "Opaque"):
        raise invalid("Secret", "", new["metadata"]["name"], [Cause("type", "field is immutable")])


def _fold_string_data(secret: Object) -> None:
    """`stringData` is write-only: it is stored, encoded, in `data`."""
    plain = secret.pop("stringData", None)
    if plain:
        from base64 import b64encode

        data = secret.setdefault("data", {})
        data.update({key: b64encode(str(value).encode()).decode() for key, value in plain.items()})


def _keep_status(node: Object) -> None:
    node.setdefault("status", {})


def _drop_status(obj: Object) -> None:
    obj.pop("status", None)


CREATE: Mapping[str, Callable[[Object], None]] = {
    "pods": _create_pod,
    "namespaces": _create_namespace,
    "services": _create_service,
    "persistentvolumeclaims": _create_claim,
    "secrets": _create_secret,
    "nodes": _keep_status,
}
UPDATE: Mapping[str, Callable[[Object, Object], None]] = {
    "pods": _update_pod,
    "services": _update_service,
    "secrets": _update_secret,
}


def prepare_create(resource: str, has_status: bool, obj: Object) -> None:
    """Complete an object about to be created; a status it came with does not count."""
    rule = CREATE.get(resource)
    if rule is not None:
        rule(obj)
    elif has_status:
        _drop_status(obj)


def prepare_update(resource: str, new: Object, old: Object) -> None:
    """Complete an object about to be replaced, or refuse the change."""
    rule = UPDATE.get(resource)
    if rule is not None:
        rule(new, old)


def grace_seconds(pod: Object, asked: int | None) -> int:
    """How long a pod may take to stop; 0 for one that no node runs (any more)."""
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in {
        "Succeeded",
        "Failed",
    }:
        return 0
    if asked is not None:
        return max(asked, 0)
    return int(spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS))
