"""What may not be in a pod, beside wrong types: what the scheduler and the node agent rely on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.kinds.shared.pod_rules import check_template
from trainyard.schema.names import is_plain_label
from trainyard.schema.problems import REQUIRED, Path, Problem, error

MOST_SECONDS = 2**31 - 1
"""Of a deadline or a grace period: what C's times hold; 68 years."""
MOST_PORT = 65535
_MOST_ID = 2**31 - 1
_POLICIES = ("Always", "OnFailure", "Never")
_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
_HOOKS = ("postStart", "preStop")
_AT_LEAST = {
    "initialDelaySeconds": 0,
    "timeoutSeconds": 0,
    "periodSeconds": 0,
    "successThreshold": 0,
    "failureThreshold": 0,
}
_IDS = ("runAsUser", "runAsGroup", "fsGroup")

Object = Mapping[str, Any]


def problems(pod: Object) -> Iterator[Problem]:
    """Every problem of a pod whose types are right."""
    spec = pod.get("spec") or {}
    yield from check_template({"spec": spec}, ())
    policy = spec.get("restartPolicy", "Always")
    if policy and policy not in _POLICIES:
        message = f"must be one of {', '.join(_POLICIES)}, not '{policy}'"
        yield error(("spec", "restartPolicy"), message)
    for field in ("hostname", "subdomain"):
        if spec.get(field) and not is_plain_label(spec[field]):
            text = f"'{spec[field][:63]}' is no host name; use lower-case letters, digits and '-'"
            yield error(("spec", field), text)
    yield from bounds(spec, ("spec",), "terminationGracePeriodSeconds", 0, MOST_SECONDS)
    yield from bounds(spec, ("spec",), "activeDeadlineSeconds", 1, MOST_SECONDS)
    yield from _ids(spec.get("securityContext") or {}, ("spec", "securityContext"))
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            yield from _container(container, ("spec", group, index))


def bounds(obj: Object, path: Path, field: str, least: int, most: int) -> Iterator[Problem]:
    """A number that is there must be in a range."""
    value = obj.get(field)
    if value is not None and not least <= value <= most:
        yield error((*path, field), f"must be between {least} and {most}, is {value}")


def _ids(context: Object, path: Path) -> Iterator[Problem]:
    for field in _IDS:
        yield from bounds(context, path, field, 0, _MOST_ID)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= group <= _MOST_ID:
            here = (*path, "supplementalGroups", index)
            yield error(here, f"must be between 0 and {_MOST_ID}, is {group}")


def _container(container: Object, path: Path) -> Iterator[Problem]:
    yield from _ids(container.get("securityContext") or {}, (*path, "securityContext"))
    for index, port in enumerate(container.get("ports") or ()):
        here = (*path, "ports", index)
        yield from bounds(port, here, "containerPort", 1, MOST_PORT)
        yield from bounds(port, here, "hostPort", 0, MOST_PORT)
    for name in _PROBES:
        if probe := container.get(name):
            for field, least in _AT_LEAST.items():
                yield from bounds(probe, (*path, name), field, least, MOST_SECONDS)
            yield from bounds(
                probe, (*path, name), "terminationGracePeriodSeconds", 1, MOST_SECONDS
            )
            yield from _action(probe, (*path, name))
    for name in _HOOKS:
        if hook := (container.get("lifecycle") or {}).get(name):
            yield from _action(hook, (*path, "lifecycle", name))


def _action(action: Object, path: Path) -> Iterator[Problem]:
    if "exec" in action and not action["exec"].get("command"):
        yield error((*path, "exec", "command"), REQUIRED)
    for kind in ("httpGet", "tcpSocket", "grpc"):
        port = (action.get(kind) or {}).get("port")
        if isinstance(port, int) and not 1 <= port <= MOST_PORT:
            message = f"must be between 1 and {MOST_PORT}, is {port}"
            yield error((*path, kind, "port"), message)
    if "sleep" in action:
        yield from bounds(action["sleep"], (*path, "sleep"), "seconds", 0, MOST_SECONDS)
