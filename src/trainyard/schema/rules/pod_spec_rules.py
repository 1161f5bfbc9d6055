"""Pods, and the templates of pods that jobs have."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from trainyard.schema.object_names import is_plain_label
from trainyard.schema.problems import REQUIRED, Path, Problem, error
from trainyard.schema.rules import security_rules
from trainyard.schema.rules.annotation_rules import pod_annotation_rules
from trainyard.schema.rules.common_rules import (
    MOST_INT32,
    Object,
    address,
    at_most_one,
    bounds,
    choice,
    label_name,
    object_name,
    qualified,
    unique,
)
from trainyard.schema.rules.container_rules import Pod, containers
from trainyard.schema.rules.os_rules import system
from trainyard.schema.rules.placement_rules import placement
from trainyard.schema.rules.resource_rules import pod_resources
from trainyard.schema.rules.volume_rules import volume

GRACE_SECONDS = 30
_RESTART = ("Always", "OnFailure", "Never")
_NAMES = (
    ("serviceAccountName", "name of a service account"),
    ("nodeName", "name of a node"),
    ("priorityClassName", "name of a priority class"),
    ("runtimeClassName", "name of a runtime class"),
)
_LONGEST_HOST_NAME = 64
_MOST_SERVERS, _MOST_SEARCHES, _MOST_SEARCHED = 3, 32, 2048


def grace_seconds(spec: Object) -> int:
    """Seconds that a pod may take to end, by its `terminationGracePeriodSeconds`: 30 without one.

    As in Kubernetes, a negative number counts as 1. It is capped at the highest 32-bit integer, 68
    years, which is what times of the system hold.
    """
    given = spec.get("terminationGracePeriodSeconds")
    if given is None:
        return GRACE_SECONDS
    return min(given, MOST_INT32) if given >= 0 else 1


def pod(obj: Object, old: Object | None = None) -> Iterator[Problem]:
    """Problems of a pod that is new, or takes the place of `old`."""
    spec, path = obj.get("spec") or {}, ("spec",)
    if not spec.get("containers"):
        yield error(("spec", "containers"), "needs at least one container")
        return
    yield from pod_spec(spec, path)
    yield from pod_annotations(obj)
    yield from choice(spec, path, "restartPolicy", _RESTART)
    if old is None and spec.get("ephemeralContainers"):
        yield error(("spec", "ephemeralContainers"), "cannot be set when a pod is created")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield error(("spec", "nodeName"), "cannot be set while there are schedulingGates")


def pod_annotations(obj: Object) -> Iterator[Problem]:
    """Problems of the annotations of a pod with a valid spec."""
    given = obj["metadata"].get("annotations") or {}
    yield from pod_annotation_rules(given, obj["spec"], ("metadata", "annotations"))


def pod_status(status: Object) -> Iterator[Problem]:
    """Problems of the status of a pod: addresses, and conditions that others have set."""
    for index, each in enumerate(status.get("conditions") or ()):
        yield from qualified(each["type"], ("status", "conditions", index, "type"))
    given = [each.get("ip") or "" for each in status.get("podIPs") or ()]
    addresses = given or [status["podIP"]] if given or status.get("podIP") else []
    versions = set()
    for index, each in enumerate(addresses):
        here: Path = ("status", "podIPs", index)
        wrong = list(address(each, here))
        yield from wrong
        if not wrong:
            version = ipaddress.ip_address(each).version
            if version in versions:
                yield error(here[:2], "there may be one address of each IP family")
            versions.add(version)


def pod_spec(spec: Object, path: Path, *, is_template: bool = False) -> Iterator[Problem]:
    """Problems of the spec of a pod or, with `is_template`, of a template; it has containers."""
    volumes = spec.get("volumes") or ()
    yield from unique(
        (each["name"] for each in volumes), (*path, "volumes"), "name", "volume named"
    )
    for index, each in enumerate(volumes):
        here = (*path, "volumes", index)
        if not each["name"]:
            yield error((*here, "name"), REQUIRED)
        else:
            yield from label_name(each["name"], (*here, "name"), "volume name")
        yield from volume(each, here)
    about = Pod(
        volumes={each["name"]: each for each in volumes},
        claims=[each["name"] for each in spec.get("resourceClaims") or ()],
        grace_seconds=grace_seconds(spec),
        host_network=bool(spec.get("hostNetwork")),
        host_users=spec.get("hostUsers") is not False,
        system=(spec.get("os") or {}).get("name"),
    )
    yield from containers(spec, about, path)
    yield from bounds(spec, path, "activeDeadlineSeconds", 1, MOST_INT32)
    yield from security_rules.pod_security(spec, path)
    yield from placement(spec, path)
    yield from _network(spec, path)
    yield from _claims(spec, path)
    for field, what in _NAMES:
        if spec.get(field):
            yield from object_name(spec[field], (*path, field), what)
    yield from system(spec, path)
    yield from pod_resources(spec, path)
    if is_template and spec.get("ephemeralContainers"):
        yield error((*path, "ephemeralContainers"), "cannot be in a template")


def _network(spec: Object, path: Path) -> Iterator[Problem]:
    for field in ("hostname", "subdomain"):
        if spec.get(field) and not is_plain_label(spec[field]):
            text = f"'{spec[field][:63]}' is no host name; use lower-case letters, digits and '-'"
            yield error((*path, field), text)
    if (name := spec.get("hostnameOverride")) is not None:
        here = (*path, "hostnameOverride")
        yield from object_name(name, here, "host name")
        if len(name) > _LONGEST_HOST_NAME:
            yield error(here, f"must not be longer than {_LONGEST_HOST_NAME} characters")
        for field in ("setHostnameAsFQDN", "hostNetwork"):
            if spec.get(field):
                yield error(here, f"cannot be combined with {field}: true")
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        here = (*path, "hostAliases", index)
        yield from address(alias.get("ip") or "", (*here, "ip"))
        for number, name in enumerate(alias.get("hostnames") or ()):
            yield from object_name(name, (*here, "hostnames", number), "host name")
    yield from _names(spec, spec.get("dnsConfig") or {}, (*path, "dnsConfig"))


def _names(spec: Object, config: Object, here: Path) -> Iterator[Problem]:
    """How names are resolved."""
    servers, searches = config.get("nameservers") or (), config.get("searches") or ()
    if spec.get("dnsPolicy") == "None" and not servers:
        text = "needs at least one address where dnsPolicy is None"
        yield error((*here, "nameservers"), text)
    if len(servers) > _MOST_SERVERS:
        yield error((*here, "nameservers"), f"there may be at most {_MOST_SERVERS}")
    for index, server in enumerate(servers):
        yield from address(server, (*here, "nameservers", index))
    if len(searches) > _MOST_SEARCHES or len(" ".join(searches)) > _MOST_SEARCHED:
        text = f"there may be at most {_MOST_SEARCHES}, of {_MOST_SEARCHED} characters in all"
        yield error((*here, "searches"), text)
    for index, domain in enumerate(searches):
        plain = domain.removesuffix(".").replace("_", "a") or "a"
        yield from object_name(plain, (*here, "searches", index), "domain")
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield error((*here, "options", index, "name"), REQUIRED)


def _claims(spec: Object, path: Path) -> Iterator[Problem]:
    claims, here = spec.get("resourceClaims") or (), (*path, "resourceClaims")
    yield from unique((each["name"] for each in claims), here, "name", "claim named")
    for index, each in enumerate(claims):
        place, sources = (*here, index), ("resourceClaimName", "resourceClaimTemplateName")
        yield from label_name(each["name"], (*place, "name"), "claim name")
        yield from at_most_one(each, place, sources, "source")
        given = [field for field in sources if each.get(field) is not None]
        if not given:
            yield error(place, f"must have one of {' and '.join(sources)}")
        for field in given:
            yield from object_name(each[field], (*place, field), "name of an object")
