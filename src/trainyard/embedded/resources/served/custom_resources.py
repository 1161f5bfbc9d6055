"""The custom kinds of the cluster's extension, each served as its CustomResourceDefinition says.

Pruning and the schema of a status follow the definition; every other rule is the kind's admission
function, the same one that clients and controllers use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from trainyard.embedded.api_errors import StatusCause, conflict
from trainyard.embedded.clock import age
from trainyard.embedded.cluster_extension import CustomKind, Extension, QueueKinds
from trainyard.embedded.resources.printer_columns import AGE, NAME, Cell, Column
from trainyard.embedded.resources.queue_names import named_queue, unknown_queue
from trainyard.embedded.resources.resource import (
    WRITE_STATUS,
    ListObjects,
    Object,
    Served,
    Subresource,
    Validation,
)
from trainyard.schema.dataclass import dataclass

if TYPE_CHECKING:
    from trainyard.embedded.resources.decoding import Decoded
    from trainyard.schema.problems import Problem

_SCALE = Subresource("Scale", WRITE_STATUS, ("autoscaling", "v1"))
_ORDER = 10_000
"""After the core resources."""


@dataclass(frozen=True)
class _Custom(Served):
    custom_kind: CustomKind = field(kw_only=True)
    queues: QueueKinds | None = field(kw_only=True)

    def validate(self, obj: Object, old: Object | None) -> Validation:
        """Prune by the definition's schema, then apply the rules of the kind.

        The rules also see into pod templates, where nothing is pruned: an unknown field there is
        refused, because a command that was silently left out would run something else.
        """
        from trainyard.schema import structural_schema

        found = super().decode(obj)
        if found.malformed:
            return Validation(obj, found.malformed)
        found.obj.pop("status", None)  # it is written on its own: here the old one stays
        pruned = structural_schema.prune(found.obj, self.schema())
        admitted = self.custom_kind.admit(pruned.obj, old)
        warnings = [problem.detail for problem in admitted.warnings]
        unknown = [*found.unknown, *pruned.unknown]
        kept = {"status": old["status"]} if old is not None and "status" in old else {}
        return Validation({**admitted.obj, **kept}, (), admitted.errors, unknown, warnings)

    def prune(self, obj: Object) -> tuple[Object, Iterable[Problem]]:
        from trainyard.schema import structural_schema

        pruned = structural_schema.prune(obj, self.schema())
        return pruned.obj, pruned.unknown

    def decode(self, obj: Object) -> Decoded:
        """As of any resource; a status must also agree with the definition's schema."""
        from trainyard.schema import structural_schema

        found, schema = super().decode(obj), self.schema()["properties"].get("status")
        if found.malformed or schema is None or "status" not in obj:
            return found
        return replace(found, errors=structural_schema.check(obj["status"], schema, ("status",)))

    def check_references(self, obj: Object, old: Object | None, list_objects: ListObjects) -> None:
        """Refuse an unknown queue once any queue was made by hand."""
        path = self.custom_kind.queue_path
        if self.queues is None or not path:
            return
        if old is not None and named_queue(old, path) == named_queue(obj, path):
            return
        present = list_objects(self.queues.queues.full_name)
        if cause := unknown_queue(obj, path, present, self.queues.default_queue):
            raise self.refused(obj, cause)

    def is_rarely_read(self, obj: Object) -> bool:
        return (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    def columns(self) -> tuple[Column, ...]:
        return _columns(self.custom_kind)

    def schema(self) -> Object:
        found: Object = _version(self.custom_kind)["schema"]["openAPIV3Schema"]
        return found

    def to_scale(self, obj: Object) -> Object:
        """The Scale of an object, by the paths that the definition names."""
        metadata, paths = obj["metadata"], self._scale_paths()
        kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        replicas = _value_at(obj, _fields(paths["specReplicasPath"]))
        if replicas is None:
            text = f"Invalid value: {self.custom_kind.scale_refusal}"
            raise self.refused(obj, StatusCause("spec", text))
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {key: metadata[key] for key in kept if key in metadata},
            "spec": {"replicas": replicas},
            "status": {
                "replicas": _value_at(obj, _fields(paths["statusReplicasPath"])) or 0,
                "selector": _value_at(obj, _fields(paths["labelSelectorPath"])) or "",
            },
        }

    def from_scale(self, obj: Object, scale: Object) -> Object:
        replicas = (scale.get("spec") or {}).get("replicas", 0)
        if replicas < 0:
            text = f"Invalid value: {replicas}: must be greater than or equal to 0"
            raise self.refused(obj, StatusCause("spec.replicas", text))
        version = (scale.get("metadata") or {}).get("resourceVersion")
        if version not in (None, "", "0", obj["metadata"]["resourceVersion"]):
            raise conflict(self.name, obj["metadata"]["name"])
        *place, last = _fields(self._scale_paths()["specReplicasPath"])
        _value_at(obj, place)[last] = replicas
        return obj

    def _scale_paths(self) -> dict[str, str]:
        paths: dict[str, str] = _version(self.custom_kind)["subresources"]["scale"]
        return paths


def _version(kind: CustomKind) -> Object:
    (version,) = kind.load_definition()["spec"]["versions"]
    found: Object = version
    return found


def _fields(path: str) -> list[str]:
    """The fields of a simple JSON path: `.spec.replicas`."""
    return path.strip(".").split(".")


def _value_at(obj: Object, fields: Sequence[str]) -> Any:
    """What is found there; None where nothing is."""
    value: Any = obj
    for name in fields:
        value = value.get(name) if isinstance(value, dict) else None
    return value


@cache
def _columns(kind: CustomKind) -> tuple[Column, ...]:
    """The `additionalPrinterColumns` of a definition."""
    custom = tuple(
        Column(
            column["name"],
            _json_path(column["jsonPath"], column["type"]),
            "string" if column["type"] == "date" else column["type"],
            column.get("priority", 0),
            description=column.get("description", ""),
        )
        for column in _version(kind).get("additionalPrinterColumns", ())
    )
    return (NAME, *custom) if custom else (NAME, AGE)


def _json_path(path: str, type_: str) -> Cell:
    """The simple JSON paths of printer columns: `.a.b`, `.a[0].b` and `.a[?(@.type=="X")].b`."""
    steps = re.findall(r"\[\?\(@\.(\w+)==[\"']([^\"']*)[\"']\)\]|\[(\d+)\]|\.?([\w/-]+)", path)

    def cell(obj: Object) -> Any:
        value: Any = obj
        for key, wanted, index, name in steps:
            if name:
                value = value.get(name) if isinstance(value, dict) else None
            else:
                items = value if isinstance(value, list) else []
                if index:
                    found = items[int(index) :]
                else:
                    found = [each for each in items if each.get(key) == wanted]
                value = found[0] if found else None
        if type_ == "date":
            return age(value) if value else None
        return value

    return cell


def served(extension: Extension) -> Iterator[Served]:
    """A resource for each custom kind of an extension, in their order."""
    for place, kind in enumerate(extension.load_kinds()):
        yield _Custom(
            kind.resource,
            order=_ORDER + place,
            short_names=kind.short_names,
            status=True,
            generation=True,
            subresources={"scale": _SCALE} if kind.scale_refusal else {},
            custom=True,
            needs_version=True,
            custom_kind=kind,
            queues=extension.queues,
        )
