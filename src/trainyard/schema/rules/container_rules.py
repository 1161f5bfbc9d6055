"""Containers of a pod, those that come before the others, and their mounts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from trainyard.schema.problems import REQUIRED, Path, Problem, error, suggest
from trainyard.schema.rules.common_rules import (
    MOST_PORT,
    Object,
    bounds,
    choice,
    label_name,
    port_name,
    relative_path,
    shown,
    unique,
    without_parent_steps,
)
from trainyard.schema.rules.env_rules import variables
from trainyard.schema.rules.os_rules import stop_signal
from trainyard.schema.rules.probe_rules import HOOKS, PROBES, lifecycle
from trainyard.schema.rules.resource_rules import requirements
from trainyard.schema.rules.security_rules import container_security

_PATHS = ("workingDir", "terminationMessagePath")
_NOT_EPHEMERAL = (
    "ports",
    "resources",
    *PROBES,
    "lifecycle",
    "restartPolicy",
    "restartPolicyRules",
    "resizePolicy",
)
_NOTHING: tuple[str, Object] = ("resources", {})
_RESIZED = ("cpu", "memory")
_RESTARTS = ("Always", "OnFailure", "Never")
_MOST_RULES = 20
_RESIZES = ("NotRequired", "RestartContainer")


class Pod(NamedTuple):
    """What the rules of a container look up in its pod."""

    volumes: Mapping[str, Object]
    claims: list[str]
    grace_seconds: int
    host_network: bool
    host_users: bool
    system: str | None


def containers(spec: Object, pod: Pod, path: Path) -> Iterator[Problem]:
    """Problems of all containers of a pod."""
    ordinary, first = spec.get("containers") or (), spec.get("initContainers") or ()
    yield from unique(
        (c["name"] for c in ordinary), (*path, "containers"), "name", "container named"
    )
    yield from unique(
        (c["name"] for c in first), (*path, "initContainers"), "name", "container named"
    )
    before = {container["name"] for container in first}
    for index, container in enumerate(ordinary):
        here = (*path, "containers", index)
        if container["name"] and container["name"] in before:
            yield error((*here, "name"), f"{shown(container['name'])} is an init container's name")
        yield from _container(container, pod, here)
        yield from lifecycle(container, here, pod.grace_seconds)
    yield from _host_ports(ordinary, (*path, "containers"))
    for index, container in enumerate(first):
        here = (*path, "initContainers", index)
        yield from _container(container, pod, here)
        yield from _host_ports([container], (*path, "initContainers"))
        if container.get("restartPolicy") == "Always":
            yield from lifecycle(container, here, pod.grace_seconds)
        else:
            yield from _without_lifecycle(container, here)
    names = {container["name"] for container in (*first, *ordinary)}
    yield from _ephemeral(spec.get("ephemeralContainers") or (), names, pod, path)


def _ephemeral(
    group: Sequence[Object], others: Collection[str], pod: Pod, path: Path
) -> Iterator[Problem]:
    """Problems of what is added to a pod that runs, beside its `others`: it has no say in it."""
    taken = set(others)
    for index, container in enumerate(group):
        here, name = (*path, "ephemeralContainers", index), container["name"]
        if name and name in taken:
            yield error((*here, "name"), f"{shown(name)} is another container's name")
        taken.add(name)
        yield from _container(container, pod, here)
        target = container.get("targetContainerName")
        if target and target not in others:
            text = f"there is no container named {shown(target)}"
            yield error((*here, "targetContainerName"), text, suggest(target, tuple(others)))
        for field in _NOT_EPHEMERAL:
            if container.get(field) not in (None, "") and (field, container[field]) != _NOTHING:
                yield error((*here, field), "cannot be set for an ephemeral container")
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    place = (*here, "volumeMounts", number, field)
                    yield error(place, "cannot be set for an ephemeral container")


def _without_lifecycle(container: Object, path: Path) -> Iterator[Problem]:
    hooks = container.get("lifecycle") or {}
    given = [("lifecycle", hooks if any(hooks.get(hook) for hook in HOOKS) else None)]
    for field, value in [*given, *((probe, container.get(probe)) for probe in PROBES)]:
        if value is not None:
            yield error((*path, field), "is for init containers with restartPolicy: Always only")


def _container(container: Object, pod: Pod, path: Path) -> Iterator[Problem]:
    if not container["name"]:
        yield error((*path, "name"), REQUIRED)
    else:
        yield from label_name(container["name"], (*path, "name"), "container name")
    image = container.get("image") or ""
    if not image:
        yield error((*path, "image"), REQUIRED)
    elif image != image.strip():
        yield error((*path, "image"), "must not begin or end with white space")
    for field in _PATHS:
        if "\0" in (container.get(field) or ""):
            yield error((*path, field), "must not hold a null character")
    yield from _ports(container, pod, path)
    yield from variables(container, path, pod.volumes)
    yield from _restarts(container, path)
    yield from stop_signal(container, path, pod.system)
    yield from _mounts(container, pod.volumes, path)
    yield from _devices(container, pod.volumes, path)
    here = (*path, "resources")
    yield from requirements(container.get("resources") or {}, here, pod.claims)
    context, here = container.get("securityContext") or {}, (*path, "securityContext")
    yield from container_security(context, here, host_users=pod.host_users)
    policies, here = container.get("resizePolicy") or (), (*path, "resizePolicy")
    yield from unique((p["resourceName"] for p in policies), here, "resourceName", "policy for")
    for index, policy in enumerate(policies):
        yield from choice(policy, (*here, index), "resourceName", _RESIZED)
        yield from choice(policy, (*here, index), "restartPolicy", _RESIZES)


def _restarts(container: Object, path: Path) -> Iterator[Problem]:
    yield from choice(container, path, "restartPolicy", _RESTARTS)
    rules, here = container.get("restartPolicyRules") or (), (*path, "restartPolicyRules")
    if rules and not container.get("restartPolicy"):
        yield error((*path, "restartPolicy"), "is required beside restartPolicyRules")
    if len(rules) > _MOST_RULES:
        yield error(here, f"there may be at most {_MOST_RULES}")
    for index, rule in enumerate(rules):
        yield from choice(rule, (*here, index), "action", ("Restart", "RestartAllContainers"))
        if (codes := rule.get("exitCodes")) is None:
            yield error((*here, index, "exitCodes"), REQUIRED)
        else:
            yield from choice(codes, (*here, index, "exitCodes"), "operator", ("In", "NotIn"))


def _ports(container: Object, pod: Pod, path: Path) -> Iterator[Problem]:
    ports, here = container.get("ports") or (), (*path, "ports")
    yield from unique((each.get("name") for each in ports), here, "name", "port named")
    for index, port in enumerate(ports):
        place = (*here, index)
        if port.get("name"):
            yield from port_name(port["name"], (*place, "name"))
        yield from bounds(port, place, "containerPort", 1, MOST_PORT)
        yield from bounds(port, place, "hostPort", 0, MOST_PORT)
        outside = port.get("hostPort") or 0
        if pod.host_network and outside and outside != port["containerPort"]:
            yield error((*place, "hostPort"), "must equal containerPort where hostNetwork is true")


def _host_ports(group: Sequence[Object], path: Path) -> Iterator[Problem]:
    taken: set[tuple[str, str, int]] = set()
    for index, container in enumerate(group):
        for number, port in enumerate(container.get("ports") or ()):
            if outside := port.get("hostPort"):
                key = (port.get("protocol") or "TCP", port.get("hostIP") or "", outside)
                if key in taken:
                    here = (*path, index, "ports", number, "hostPort")
                    yield error(here, f"a second port {outside} of the host")
                taken.add(key)


def _mounts(container: Object, volumes: Mapping[str, Object], path: Path) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        here, place = (*path, "volumeMounts", index), mount["mountPath"]
        if mount["name"] not in volumes:
            message = f"there is no volume named {shown(mount['name'])}"
            yield error((*here, "name"), message, suggest(mount["name"], tuple(volumes)))
        if place in seen:
            yield error((*here, "mountPath"), f"{shown(place)} is mounted twice")
        seen.add(place)
        yield from _mount_point(place, (*here, "mountPath"))
        for field in ("subPath", "subPathExpr"):
            if mount.get(field):
                yield from relative_path(mount[field], (*here, field))
                if (volumes.get(mount["name"]) or {}).get("image") is not None:
                    yield error((*here, field), "is not to be had of an image")
        if mount.get("subPath") and mount.get("subPathExpr"):
            yield error((*here, "subPathExpr"), "subPathExpr and subPath are mutually exclusive")
        yield from _propagation(mount, container, here)


def _mount_point(place: str, path: Path) -> Iterator[Problem]:
    """The last two are the runtime's own, found before it starts anything."""
    if not place:
        yield error(path, REQUIRED)
    elif not place.strip("/."):
        yield error(path, "is the root of the pod; mount a volume below it")
    if "\0" in place:
        yield error(path, "must not hold a null character")


def _propagation(mount: Object, container: Object, path: Path) -> Iterator[Problem]:
    kind = mount.get("mountPropagation")
    privileged = (container.get("securityContext") or {}).get("privileged")
    if kind == "Bidirectional" and not privileged:
        text = "Bidirectional is for privileged containers only"
        yield error((*path, "mountPropagation"), text)
    below = mount.get("recursiveReadOnly")
    yield from choice(mount, path, "recursiveReadOnly", ("Disabled", "IfPossible", "Enabled"))
    if below in ("IfPossible", "Enabled"):
        if not mount.get("readOnly"):
            yield error((*path, "recursiveReadOnly"), "needs readOnly: true")
        if kind not in (None, "None"):
            yield error((*path, "recursiveReadOnly"), "needs mountPropagation: None")


def _devices(container: Object, volumes: Mapping[str, Object], path: Path) -> Iterator[Problem]:
    devices, here = container.get("volumeDevices") or (), (*path, "volumeDevices")
    mounts = container.get("volumeMounts") or ()
    mounted = {mount["name"] for mount in mounts}
    places = {mount["mountPath"] for mount in mounts}
    yield from unique((each["name"] for each in devices), here, "name", "device named")
    yield from unique((each["devicePath"] for each in devices), here, "devicePath", "device at")
    for index, device in enumerate(devices):
        source, place = volumes.get(device["name"]), (*here, index)
        if source is None:
            text = f"there is no volume named {shown(device['name'])}"
            yield error((*place, "name"), text, suggest(device["name"], tuple(volumes)))
        elif not {"persistentVolumeClaim", "ephemeral"} & source.keys():
            yield error((*place, "name"), "only a claim can be a device")
        elif device["name"] in mounted:
            yield error((*place, "name"), "is in volumeMounts as well")
        if not device["devicePath"]:
            yield error((*place, "devicePath"), REQUIRED)
        yield from without_parent_steps(device["devicePath"], (*place, "devicePath"))
        if device["devicePath"] in places:
            yield error((*place, "devicePath"), "is a mountPath as well")
