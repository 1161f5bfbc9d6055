"""Rules for the metadata of objects, beyond their types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from trainyard.embedded.resources.resource import Object, Served
from trainyard.schema.object_names import is_qualified_name
from trainyard.schema.problems import REQUIRED, Path, Problem, error

_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_MAX_PREFIX = 58
"""Of a generateName, so that a label can hold the name."""
_PROPAGATIONS = ("foregroundDeletion", "orphan")
_FINALIZERS = (*_PROPAGATIONS, "kubernetes")
MAX_ANNOTATIONS_BYTES = 256 << 10


def metadata_problems(served: Served, obj: Object) -> list[Problem]:
    """Every problem of an object's metadata."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return [error(("metadata",), REQUIRED)]
    return list(_problems(served, metadata))


def _problems(served: Served, metadata: dict[str, Any]) -> Iterator[Problem]:
    for field, name in (
        ("name", metadata.get("name")),
        ("generateName", _masked(metadata.get("generateName") or "")),
    ):
        if name and not served.is_name(name):
            yield error(
                ("metadata", field),
                f"{metadata[field][:100]!r}: lower case letters, digits, '-' and '.' only, "
                "beginning and ending with a letter or digit",
            )
    yield from _labels(metadata)
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        place: Path = ("metadata", "finalizers", index)
        if not is_qualified_name(finalizer):
            yield error(place[:2], f"{finalizer[:100]!r} is not a qualified name")
        elif not served.custom and "/" not in finalizer and finalizer not in _FINALIZERS:
            yield error(place, f"{finalizer!r} is none of Kubernetes' own, nor has it a prefix")
    if set(_PROPAGATIONS) <= set(metadata.get("finalizers") or ()):
        text = f"{' and '.join(_PROPAGATIONS)} cannot both be there"
        yield error(("metadata", "finalizers"), text)
    if (metadata.get("generation") or 0) < 0:
        yield error(("metadata", "generation"), "must not be negative")
    yield from _owners(metadata.get("ownerReferences") or ())


def _masked(prefix: str) -> str:
    """A generateName as it is validated: it may end with `-`, unlike a name."""
    return f"{prefix[:-1]}a" if prefix.endswith("-") else prefix


def generated_name(prefix: str, suffix: str) -> str:
    """The name made from a generateName; "" without one."""
    return prefix[:_MAX_PREFIX] + suffix if prefix else ""


def _labels(metadata: dict[str, Any]) -> Iterator[Problem]:
    for field in ("labels", "annotations"):
        path: Path = ("metadata", field)
        for key, value in (metadata.get(field) or {}).items():
            if not is_qualified_name(key.lower() if field == "annotations" else key):
                yield error(path, f"{key[:100]!r} is not a qualified name")
            if field == "labels" and not _LABEL_VALUE.fullmatch(value):
                yield error(path, f"{value[:100]!r} is not a label value")

    size = annotations_size(metadata)
    if size > MAX_ANNOTATIONS_BYTES:
        text = f"have {size} bytes; there may be at most {MAX_ANNOTATIONS_BYTES}"
        yield error(("metadata", "annotations"), text)


def annotations_size(metadata: dict[str, Any]) -> int:
    """Bytes of all annotations, at most `MAX_ANNOTATIONS_BYTES`."""
    return sum(len(k.encode()) + len(v.encode()) for k, v in _annotations(metadata).items())


def _annotations(metadata: dict[str, Any]) -> dict[str, str]:
    return metadata.get("annotations") or {}


def _owners(references: Sequence[dict[str, Any]]) -> Iterator[Problem]:
    controllers = 0
    for index, reference in enumerate(references):
        path = ("metadata", "ownerReferences", index)
        for field in ("apiVersion", "kind", "name", "uid"):
            if not reference.get(field):
                yield error((*path, field), "must not be empty")
        if (reference.get("apiVersion"), reference.get("kind")) == ("v1", "Event"):
            yield error(path[:2], "an Event cannot own anything")
        controllers += bool(reference.get("controller"))
        if controllers == 2 and reference.get("controller"):
            yield error((*path, "controller"), "there is another owner that is the controller")
