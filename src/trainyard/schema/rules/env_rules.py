"""Variables of containers, and where their values come from."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from trainyard.schema import quantity
from trainyard.schema.problems import REQUIRED, Path, Problem, error, suggest
from trainyard.schema.rules.common_rules import (
    Object,
    data_key,
    file_path,
    object_name,
    qualified,
    required,
    shown,
    variable_name,
)

POD_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
VOLUME_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.labels",
    "metadata.annotations",
    "metadata.uid",
)
_RESOURCES = tuple(
    f"{kind}.{name}"
    for kind in ("limits", "requests")
    for name in ("cpu", "memory", "ephemeral-storage")
)
_HUGE = ("limits.hugepages-", "requests.hugepages-")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_SUBSCRIPT = re.compile(r"(.*)\['([^']*)'\]\Z")
_CPU_DIVISORS = ("1m", "1")
_BYTE_DIVISORS = ("1", *(f"1{unit}" for unit in "kMGTPE"), *(f"1{unit}i" for unit in "KMGTPE"))


def variables(container: Object, path: Path, volumes: Mapping[str, Object]) -> Iterator[Problem]:
    """Problems of a container's `env` and `envFrom`."""
    for index, variable in enumerate(container.get("env") or ()):
        here = (*path, "env", index)
        if not variable["name"]:
            yield error((*here, "name"), REQUIRED)
        else:
            yield from variable_name(variable["name"], (*here, "name"))
        if (source := variable.get("valueFrom")) is not None:
            yield from _value_from(variable, source, (*here, "valueFrom"))
            if (file := source.get("fileKeyRef")) is not None:
                yield from _of_file(file, volumes, (*here, "valueFrom", "fileKeyRef"))
    for index, source in enumerate(container.get("envFrom") or ()):
        here = (*path, "envFrom", index)
        if source.get("prefix"):
            yield from variable_name(source["prefix"], (*here, "prefix"))
        given = [field for field in ("configMapRef", "secretRef") if source.get(field) is not None]
        if len(given) != 1:
            yield error(here, "must have one of configMapRef and secretRef")
        for field in given:
            yield from required(source[field], (*here, field), "name")
            if name := source[field].get("name"):
                yield from object_name(name, (*here, field, "name"), "name of an object")


def _value_from(variable: Object, source: Object, path: Path) -> Iterator[Problem]:
    given = [field for field in _SOURCES if source.get(field) is not None]
    if not given:
        yield error(path, f"must have one of {', '.join(_SOURCES)}")
    elif variable.get("value"):
        yield error(path, "must not be there beside a value that is not empty")
    elif len(given) > 1:
        yield error(path, f"must have one of {' and '.join(given)}")
    for field in given:
        here = (*path, field)
        if field == "fieldRef":
            yield from field_reference(source[field], here, POD_FIELDS)
        elif field == "resourceFieldRef":
            yield from resource_reference(source[field], here)
        elif field != "fileKeyRef":
            yield from _key(source[field], here)


def _of_file(reference: Object, volumes: Mapping[str, Object], path: Path) -> Iterator[Problem]:
    yield from required(reference, path, "volumeName", "path", "key")
    yield from file_path(reference["path"], (*path, "path"))
    if reference["key"]:
        yield from variable_name(reference["key"], (*path, "key"))
    if (name := reference["volumeName"]) and name not in volumes:
        text = f"there is no volume named {shown(name)}"
        yield error((*path, "volumeName"), text, suggest(name, tuple(volumes)))
    elif name and volumes[name].get("emptyDir") is None:
        yield error((*path, "volumeName"), "must be that of an emptyDir")


def _key(reference: Object, path: Path) -> Iterator[Problem]:
    yield from object_name(reference.get("name", ""), (*path, "name"), "name of an object")
    if not reference.get("key"):
        yield error((*path, "key"), REQUIRED)
    else:
        yield from data_key(reference["key"], (*path, "key"))


def field_reference(reference: Object, path: Path, known: Collection[str]) -> Iterator[Problem]:
    """A `fieldRef`, which may name a few fields of the pod."""
    here, field = (*path, "fieldPath"), reference.get("fieldPath") or ""
    if not field:
        yield error(here, REQUIRED)
        return
    if (version := reference.get("apiVersion") or "v1") != "v1":
        yield error((*path, "apiVersion"), f"must be v1, not {shown(version)}")
        return
    subscript = _SUBSCRIPT.match(field)
    if subscript is None:
        if field not in known:
            names = tuple(known)
            text = f"{shown(field)} is none of {', '.join(names)}"
            if known is POD_FIELDS:
                text += ", metadata.labels['KEY'], metadata.annotations['KEY']"
            yield error(here, text, suggest(field, names))
    elif subscript[1] not in ("metadata.labels", "metadata.annotations"):
        yield error(here, f"{shown(subscript[1])} has no keys")
    else:
        lower = subscript[1] == "metadata.annotations"
        yield from qualified(subscript[2].lower() if lower else subscript[2], here)


def resource_reference(
    reference: Object, path: Path, *, in_volume: bool = False
) -> Iterator[Problem]:
    """A `resourceFieldRef`: an amount that a container asks for."""
    name = reference.get("resource") or ""
    if in_volume and not reference.get("containerName"):
        yield error((*path, "containerName"), REQUIRED)
    elif not name:
        yield error((*path, "resource"), REQUIRED)
    elif name not in _RESOURCES and not name.startswith(_HUGE):
        text = f"{shown(name)} is none of {', '.join(_RESOURCES)}"
        yield error((*path, "resource"), text, suggest(name, _RESOURCES))
    divisor = str(reference.get("divisor") or "0")
    if quantity.parse(divisor):
        allowed = _CPU_DIVISORS if name.endswith(".cpu") else _BYTE_DIVISORS
        known = name in _RESOURCES or name.startswith(_HUGE)
        if known and not any(quantity.parse(divisor) == quantity.parse(e) for e in allowed):
            yield error((*path, "divisor"), f"must be one of {', '.join(allowed)}")
