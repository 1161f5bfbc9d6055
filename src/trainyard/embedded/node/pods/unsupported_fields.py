"""Fields of pods and Services without effect on this machine; each is reported (decision 66)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trainyard.embedded.node.network.service_forwarding import external_name_target
from trainyard.schema.rules.service_rules import HEADLESS

_OWN, _ONE_MACHINE = "pods on this machine have their own", "all pods run on this one machine"
_IGNORED_POD_FIELDS = {
    "hostNetwork": _OWN,
    "hostPID": _OWN,
    "hostIPC": _OWN,
    "shareProcessNamespace": "each container sees its own processes only",
    "runtimeClassName": "there is one way to run pods on this machine",
    "priorityClassName": "priorities are those of the queue and the PodGroup",
    "priority": "priorities are those of the queue and the PodGroup",
    "resources": "what its containers ask for counts",
    "schedulingGroup": "pods start together as their job or PodGroup says",
    "evictionResponders": "an eviction waits for nobody on this machine",
    "hostnameOverride": "a pod is called by its hostname, or by its name",
    "setHostnameAsFQDN": "a pod is called by its short name",
    "readinessGates": "nobody sets such conditions on this machine",
    "affinity.podAffinity": _ONE_MACHINE,
    "affinity.podAntiAffinity": _ONE_MACHINE,
    "topologySpreadConstraints": _ONE_MACHINE,
    "resourceClaims": "devices are had by resources.limits only",
    "securityContext.sysctls": "kernel settings are left as they are",
}
_IGNORED_CONTAINER_FIELDS = {
    "lifecycle.stopSignal": "it is stopped with SIGTERM",
    "resizePolicy": "resources of a running container stay as they are",
    "restartPolicyRules": "restartPolicy decides alone",
    "securityContext.procMount": "/proc is as in every container",
    "securityContext.windowsOptions": "this machine runs Linux",
}
_OUTSIDE = "nothing outside of this machine reaches it"
_IGNORED_SERVICE_FIELDS = {
    "externalIPs": f"externalIPs: {_OUTSIDE}",
    "loadBalancerIP": f"loadBalancerIP: {_OUTSIDE}",
    "loadBalancerClass": f"loadBalancerClass: {_OUTSIDE}",
    "loadBalancerSourceRanges": f"loadBalancerSourceRanges: {_OUTSIDE}",
    "healthCheckNodePort": "healthCheckNodePort: there is no load balancer",
}
_IGNORED_SERVICE_VALUES = {
    ("sessionAffinity", "ClientIP"): "sessionAffinity: each connection goes to the next pod",
    ("externalTrafficPolicy", "Local"): (
        "externalTrafficPolicy: pods do not see who connects from outside"
    ),
    ("ipFamilyPolicy", "RequireDualStack"): "ipFamilyPolicy: addresses are of IPv4",
}
_DEFAULT_SCHEDULER = "default-scheduler"
_KERNEL_POLICIES = ("appArmorProfile", "seLinuxOptions")


def unsupported_in_pod(
    pod: Mapping[str, Any],
    isolation: str,
    *,
    has_resolver: bool,
    scheduler_names: Collection[str] = (),
) -> list[str]:
    """What of a pod has no effect here, each a sentence that begins with the field's name.

    ``isolation`` is the shim's; ``scheduler_names`` are those of the Extension.
    """
    spec = pod["spec"]
    found = [*_pod(spec, scheduler_names), *([] if has_resolver else _dns(spec)), *_volumes(spec)]
    if spec.get("hostAliases") and isolation == "plain":
        found.append("hostAliases: needs namespaces")
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        found += unsupported_in_container(spec, container, isolation)
    return list(dict.fromkeys(found))


def unsupported_in_service(
    service: Mapping[str, Any], *, has_resolver: bool, is_plain: bool
) -> str:
    """What of a Service has no effect here; "" if all of it has.

    `has_resolver`: pods have a name server; `is_plain`: they have no namespaces.
    """
    spec, name = service["spec"], service["metadata"]["name"]
    if (
        spec.get("type") == "ExternalName"
        and external_name_target(service) is None
        and not has_resolver
    ):
        other = spec["externalName"]
        return f"Service {name}: pods on this machine do not find {other} by the Service's name"
    problems = [text for field, text in _IGNORED_SERVICE_FIELDS.items() if spec.get(field)]
    problems += [
        text for (field, value), text in _IGNORED_SERVICE_VALUES.items() if spec.get(field) == value
    ]
    if spec.get("clusterIP", "") not in ("", HEADLESS):
        problems += [
            text for port in spec.get("ports", ()) for text in _port(port, is_plain=is_plain)
        ]
    return f"Service {name}: {'; '.join(problems)}" if problems else ""


def _port(port: Mapping[str, Any], *, is_plain: bool) -> Iterator[str]:
    protocol, number = port.get("protocol", "TCP"), port["port"]
    if protocol == "SCTP":
        yield f"port {number}/SCTP is not forwarded on this machine, only TCP and UDP are"
    if protocol == "UDP" and is_plain and port.get("targetPort", number) != number:
        yield f"port {number}/UDP: needs namespaces, as targetPort is another"
    if protocol != "TCP" and port.get("nodePort"):
        yield f"nodePort {port['nodePort']}/{protocol} is not opened on this machine, only TCP is"


def _pod(spec: Mapping[str, Any], scheduler_names: Collection[str]) -> Iterator[str]:
    for field, text in _IGNORED_POD_FIELDS.items():
        if _value(spec, field):
            yield f"{field}: {text}"
    scheduler = spec.get("schedulerName", _DEFAULT_SCHEDULER)
    if scheduler not in (_DEFAULT_SCHEDULER, *scheduler_names):
        yield "schedulerName: all pods are placed by the one scheduler of this cluster"
    if spec.get("hostUsers") is False:
        yield "hostUsers: pods have the users that the cluster has"
    if (spec.get("os") or {}).get("name", "linux") != "linux" or _value(
        spec, "securityContext.windowsOptions"
    ):
        yield "os: this machine runs Linux"
    if spec.get("automountServiceAccountToken"):
        yield "automountServiceAccountToken: pods on this machine get no token for the API server"
    if spec.get("serviceAccountName", "default") != "default":
        yield "serviceAccountName: pods on this machine get no token for the API server"


def _dns(spec: Mapping[str, Any]) -> Iterator[str]:
    """Search lists are not reported: controllers set them, and /etc/hosts has the names."""
    policy = spec.get("dnsPolicy", "ClusterFirst")
    config = spec.get("dnsConfig") or {}
    if config.get("nameservers") or config.get("options") or not policy.startswith("ClusterFirst"):
        yield "dnsPolicy, dnsConfig: pods reach no name server here"


def _value(spec: Mapping[str, Any], path: str) -> Any:
    value: Any = spec
    for name in path.split("."):
        value = (value or {}).get(name)
    return value


def _volumes(spec: Mapping[str, Any]) -> Iterator[str]:
    for volume in spec.get("volumes", ()):
        empty = volume.get("emptyDir") or {}
        if empty.get("sizeLimit") and empty.get("medium") != "Memory":
            yield (
                f"volume {volume['name']}: emptyDir.sizeLimit {empty['sizeLimit']} is enforced "
                "with medium: Memory only"
            )
        if empty.get("medium") == "Memory" and _value(spec, "securityContext.fsGroup") is not None:
            yield f"volume {volume['name']}: fsGroup is not given to it with medium: Memory"


def unsupported_in_container(
    spec: Mapping[str, Any], container: Mapping[str, Any], isolation: str
) -> Iterator[str]:
    """What of a container has no effect here; ``spec`` is that of its pod."""
    where = f" of container {container['name']}"
    for field, text in _IGNORED_CONTAINER_FIELDS.items():
        if _value(container, field):
            yield f"{field}{where}: {text}"
    if container.get("restartPolicy") and container not in (spec.get("initContainers") or ()):
        yield f"restartPolicy{where}: that of the pod counts"
    if container.get("volumeDevices"):
        yield f"volumeDevices{where}: there are no block volumes here"
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield f"hostPort{where}: no port of this machine is opened"
    mounts = container.get("volumeMounts", ())
    if any(mount.get("mountPropagation", "None") != "None" for mount in mounts):
        yield f"mountPropagation{where}: mounts stay within the container"
    limits = container.get("resources", {}).get("limits", {})
    if "ephemeral-storage" in limits and isolation == "plain":
        yield f"limits.ephemeral-storage{where}: room on the disk is not limited"
    yield from _security(spec, container, where, isolation)


def _security(
    spec: Mapping[str, Any], container: Mapping[str, Any], where: str, isolation: str
) -> Iterator[str]:
    context = {**spec.get("securityContext", {}), **container.get("securityContext", {})}
    for policy in _KERNEL_POLICIES:
        if policy in context and context[policy].get("type") != "Unconfined":
            yield f"{policy}{where}: no such policy is applied on this machine"
    profile = context.get("seccompProfile", {}).get("type")
    if profile == "Localhost":
        yield f"seccompProfile{where}: profiles of one's own are not read, the default one applies"
    if profile == "RuntimeDefault" and isolation == "plain":
        yield f"seccompProfile{where}: needs namespaces"
    user = context.get("runAsUser", os.geteuid()) if isolation == "root" else os.geteuid()
    if context.get("runAsNonRoot") and user == 0:
        yield f"runAsNonRoot{where}: it runs as root; name another user with runAsUser"
    if isolation != "root":
        for change in ("add", "drop"):
            if context.get("capabilities", {}).get(change):
                yield f"capabilities.{change}{where}: needs root"
        if context.get("privileged"):
            yield f"privileged{where}: it has the rights of who started the cluster, no more"
