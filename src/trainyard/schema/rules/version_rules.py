"""What Kubernetes of some version refuses or takes for something else, although it has the fields.

A version is its minor number: 27 is Kubernetes 1.27. Where a feature gate decides, it is the first
in which that is on by default.
https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from trainyard.schema.problems import Path, Problem, error, warning
from trainyard.schema.rules.common_rules import Object, shown

_PLAIN_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*\Z")
_PLAIN_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\.?\Z")
_NOT_MOUNTED = {
    "scaleIO": 22,
    "storageos": 25,
    "quobyte": 25,
    "flocker": 25,
    "glusterfs": 26,
    "cephfs": 31,
    "rbd": 31,
    "gitRepo": 33,
}
"""Volumes that servers still take and nodes no longer mount, and since when.
https://kubernetes.io/docs/concepts/storage/volumes/"""
_SECCOMP = ("seccomp.security.alpha.kubernetes.io/", "container.seccomp.security.alpha.kubernetes")
_PROFILES = ("runtime/default", "docker/default", "unconfined", "localhost/")


def check_for_version(definition: str, obj: Object, path: Path, version: int) -> Iterator[Problem]:
    """Errors where a server refuses an object of a definition, warnings where it bends it."""
    if (rule := _RULES.get(definition)) is not None:
        yield from rule(obj, path, version)


def _refused(path: Path, version: int, taken_by: int, what: str, fix: str) -> Iterator[Problem]:
    if version < taken_by:
        text = f"is refused by Kubernetes 1.{version}, which does not take {what}"
        yield error(path, f"{text}: 1.{taken_by} does; {fix}")


def _variable(obj: Object, path: Path, version: int) -> Iterator[Problem]:
    for field in ("name", "prefix"):
        if (name := obj.get(field)) and not _PLAIN_VARIABLE.match(name):
            what = "a name with a digit first or beyond letters, digits, '-', '_' and '.'"
            yield from _refused((*path, field), version, 32, what, "rename the variable")


def _field(obj: Object, path: Path, version: int) -> Iterator[Problem]:
    if obj.get("fieldPath") == "status.hostIPs":
        place = (*path, "fieldPath")
        yield from _refused(place, version, 29, "status.hostIPs", "write status.hostIP")


def _amount(obj: Object, path: Path, version: int) -> Iterator[Problem]:
    if "hugepages-" in (obj.get("resource") or ""):
        fix = "write the amount as a plain value"
        yield from _refused((*path, "resource"), version, 22, "huge pages here", fix)


def _toleration(obj: Object, path: Path, version: int) -> Iterator[Problem]:
    if obj.get("operator") in ("Lt", "Gt"):
        fix = "write Equal or Exists"
        yield from _refused((*path, "operator"), version, 36, "Lt and Gt", fix)


def _claim(obj: Object, path: Path, version: int) -> Iterator[Problem]:
    for index, mode in enumerate(obj.get("accessModes") or ()):
        if mode == "ReadWriteOncePod":
            place = (*path, "accessModes", index)
            yield from _refused(place, version, 27, mode, "write ReadWriteOnce")


def _names(obj: Object, path: Path, version: int) -> Iterator[Problem]:
    for index, domain in enumerate(obj.get("searches") or ()):
        if not _PLAIN_DOMAIN.match(domain):
            place = (*path, "searches", index)
            yield from _refused(place, version, 33, shown(domain), "name a plain DNS domain")


def _service(obj: Object, path: Path, version: int) -> Iterator[Problem]:
    if (given := obj.get("trafficDistribution")) in ("PreferSameZone", "PreferSameNode"):
        place = (*path, "trafficDistribution")
        yield from _refused(place, version, 34, given, "write PreferClose")


def _container(obj: Object, path: Path, version: int) -> Iterator[Problem]:
    policy = obj.get("restartPolicy")
    if policy and (path[-2:-1] != ("initContainers",) or policy != "Always"):
        what = "a restartPolicy of a container but Always of an init container"
        yield from _refused((*path, "restartPolicy"), version, 35, what, "leave it to the pod's")


def _volume(obj: Object, path: Path, version: int) -> Iterator[Problem]:
    for kind in obj.keys() & _NOT_MOUNTED.keys():
        if obj[kind] is not None and version >= (gone := _NOT_MOUNTED[kind]):
            instead = "clone in an init container" if kind == "gitRepo" else "use a claim"
            text = f"is taken by Kubernetes 1.{version}, but not mounted since 1.{gone}"
            yield warning((*path, kind), f"{text}, so that no pod starts; {instead}")


def _empty_dir(obj: Object, path: Path, version: int) -> Iterator[Problem]:
    if version < 22 and obj.get("medium") == "Memory" and obj.get("sizeLimit"):
        text = f"does not size the volume on Kubernetes 1.{version} but half of the node's memory"
        yield warning((*path, "sizeLimit"), f"{text} does; a pod that exceeds it is evicted")


def _metadata(obj: Object, path: Path, version: int) -> Iterator[Problem]:
    fix = "set securityContext.seccompProfile"
    for key, value in (obj.get("annotations") or {}).items():
        here = (*path, "annotations", key)
        if key.startswith(_SECCOMP) and version >= 27:
            text = f"has no effect on Kubernetes 1.{version}, nor on any since 1.27; {fix}"
            yield warning(here, text)
        elif key.startswith(_SECCOMP) and not value.startswith(_PROFILES):
            yield from _refused(here, version, 27, shown(value), fix)


_RULES: Mapping[str, Callable[[Object, Path, int], Iterator[Problem]]] = {
    "Container": _container,
    "EmptyDirVolumeSource": _empty_dir,
    "EnvFromSource": _variable,
    "EnvVar": _variable,
    "ObjectFieldSelector": _field,
    "ObjectMeta": _metadata,
    "PersistentVolumeClaimSpec": _claim,
    "PodDNSConfig": _names,
    "ResourceFieldSelector": _amount,
    "ServiceSpec": _service,
    "Toleration": _toleration,
    "Volume": _volume,
}
