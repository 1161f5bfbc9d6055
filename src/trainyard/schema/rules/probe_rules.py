"""Probes and hooks of containers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainyard.schema.problems import REQUIRED, Path, Problem, error
from trainyard.schema.rules.common_rules import (
    MOST_INT32,
    Object,
    at_most_one,
    bounds,
    choice,
    port,
    required,
    shown,
)

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
HOOKS = ("postStart", "preStop")
_PROBE_ACTIONS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_ACTIONS = ("exec", "httpGet", "tcpSocket", "sleep")
_NUMBERS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_HEADER = re.compile(r"[-A-Za-z0-9]+\Z")


def lifecycle(container: Object, path: Path, grace_seconds: int) -> Iterator[Problem]:
    """Problems of a container's probes and hooks."""
    for name in PROBES:
        if (probe := container.get(name)) is not None:
            yield from _probe(probe, (*path, name), name)
    hooks = container.get("lifecycle") or {}
    for name in HOOKS:
        if (hook := hooks.get(name)) is not None:
            here = (*path, "lifecycle", name)
            yield from _action(hook, here, _HOOK_ACTIONS)
            if (sleep := hook.get("sleep")) is not None:
                yield from bounds(sleep, (*here, "sleep"), "seconds", 0, grace_seconds)


def _probe(probe: Object, path: Path, name: str) -> Iterator[Problem]:
    yield from _action(probe, path, _PROBE_ACTIONS)
    for field in _NUMBERS:
        yield from bounds(probe, path, field, 0, MOST_INT32)
    if name == "readinessProbe":
        if probe.get("terminationGracePeriodSeconds") is not None:
            text = "must not be set for a readiness probe, which stops nothing"
            yield error((*path, "terminationGracePeriodSeconds"), text)
    else:
        yield from bounds(probe, path, "terminationGracePeriodSeconds", 1, 2**63 - 1)
        if probe.get("successThreshold") not in (None, 0, 1):
            yield error((*path, "successThreshold"), "must be 1")


def _action(action: Object, path: Path, kinds: tuple[str, ...]) -> Iterator[Problem]:
    if all(action.get(kind) is None for kind in kinds):
        yield error(path, f"must have one of {', '.join(kinds)}")
    yield from at_most_one(action, path, kinds, "action")
    if (command := action.get("exec")) is not None:
        yield from required(command, (*path, "exec"), "command")
    if (http := action.get("httpGet")) is not None:
        here = (*path, "httpGet")
        yield from choice(http, here, "scheme", ("HTTP", "HTTPS"))
        for index, header in enumerate(http.get("httpHeaders") or ()):
            if not _HEADER.match(header["name"]):
                text = f"{shown(header['name'])} is not the name of a header"
                yield error((*here, "httpHeaders", index, "name"), text)
    for kind in kinds:
        if kind in ("httpGet", "tcpSocket", "grpc") and action.get(kind) is not None:
            number = action[kind].get("port")
            here = (*path, kind, "port")
            yield from port(number, here) if number not in (None, "") else [error(here, REQUIRED)]
