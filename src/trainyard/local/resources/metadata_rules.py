"""What may not be in the metadata of an object whose types are right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from trainyard.local.resources.resource import Object, Served
from trainyard.schema.names import is_qualified_name
from trainyard.schema.problems import REQUIRED, Path, Problem, error

_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LONGEST_PREFIX = 58
"""Of a generateName, so that a label can hold the name."""
_OPERATIONS = ("Apply", "Update")


def metadata_problems(served: Served, obj: Object) -> list[Problem]:
    """Every problem of the metadata of an object that has any."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return [error(("metadata",), REQUIRED)]
    return list(_problems(served, metadata))


def _problems(served: Served, metadata: dict[str, Any]) -> Iterator[Problem]:
    for field, name in (
        ("name", metadata.get("name")),
        ("generateName", generated(metadata.get("generateName", ""), "x")),
    ):
        if name and not served.is_name(name):
            yield error(
                ("metadata", field),
                f"{metadata[field][:100]!r}: lower case letters, digits, '-' and '.' only, "
                "beginning and ending with a letter or digit",
            )
    yield from _labels(metadata)
    for finalizer in metadata.get("finalizers") or ():
        if not is_qualified_name(finalizer):
            yield error(("metadata", "finalizers"), f"{finalizer[:100]!r} is not a qualified name")
    yield from _owners(metadata.get("ownerReferences") or ())
    for index, entry in enumerate(metadata.get("managedFields") or ()):
        if entry.get("operation") not in _OPERATIONS:
            path: Path = ("metadata", "managedFields", index, "operation")
            yield error(path, f"must be one of {', '.join(_OPERATIONS)}")


def generated(prefix: str, suffix: str) -> str:
    """The name that is made of a generateName; "" of none."""
    return prefix[:_LONGEST_PREFIX] + suffix if prefix else ""


def _labels(metadata: dict[str, Any]) -> Iterator[Problem]:
    for field in ("labels", "annotations"):
        path: Path = ("metadata", field)
        for key, value in (metadata.get(field) or {}).items():
            if not is_qualified_name(key):
                yield error(path, f"{key[:100]!r} is not a qualified name")
            if field == "labels" and not _LABEL_VALUE.fullmatch(value):
                yield error(path, f"{value[:100]!r} is not a label value")


def _owners(references: Sequence[dict[str, Any]]) -> Iterator[Problem]:
    controllers = 0
    for index, reference in enumerate(references):
        path = ("metadata", "ownerReferences", index)
        for field in ("apiVersion", "kind", "name", "uid"):
            if not reference.get(field):
                yield error((*path, field), "must not be empty")
        controllers += bool(reference.get("controller"))
        if controllers == 2 and reference.get("controller"):
            yield error((*path, "controller"), "there is another owner that is the controller")
