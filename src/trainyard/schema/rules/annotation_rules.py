"""Annotations of pods that mean something to Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainyard.schema.problems import Path, Problem, error
from trainyard.schema.rules.common_rules import MOST_INT32, Object, shown

_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_COST = "controller.kubernetes.io/pod-deletion-cost"
_MIRROR = "kubernetes.io/config.mirror"
_NUMBER = re.compile(r"0\Z|-?[1-9][0-9]{0,9}\Z")


def pod_annotation_rules(given: Object, spec: Object, path: Path) -> Iterator[Problem]:
    """Problems of a pod's annotations with its spec."""
    for key, value in given.items():
        if key.startswith(_APPARMOR):
            yield from _profile(key.removeprefix(_APPARMOR), value, spec, (*path, key))
    cost = given.get(_COST, "0")
    if not _NUMBER.match(cost) or not -MOST_INT32 - 1 <= int(cost) <= MOST_INT32:
        yield error((*path, _COST), f"{shown(cost)} is no integer of 32 bits")
    if given.get(_MIRROR) and not spec.get("nodeName"):
        yield error((*path, _MIRROR), "is for pods with a nodeName only")


def _profile(name: str, value: str, spec: Object, path: Path) -> Iterator[Problem]:
    names = [
        container["name"]
        for group in ("initContainers", "containers")
        for container in spec.get(group) or ()
    ]
    if name not in names:
        yield error(path, f"there is no container {shown(name)}")
    known = ("", "runtime/default", "unconfined")
    if value not in known and not value.startswith("localhost/"):
        text = f"{shown(value)} is no profile: runtime/default, localhost/NAME or unconfined"
        yield error(path, text)
