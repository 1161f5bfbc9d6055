"""The kinds of `trainyard.kinds`, each as its CustomResourceDefinition has it served.

Their rules are those of `trainyard.kinds.admission`, the very function that the command line and
the controller use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from trainyard.embedded.api_errors import Cause, conflict
from trainyard.embedded.clock import age
from trainyard.embedded.resources.columns import AGE, NAME, Cell, Column
from trainyard.embedded.resources.queuenames import named_queue, unknown_queue
from trainyard.embedded.resources.resource import (
    WRITE_STATUS,
    Listed,
    Object,
    Served,
    Subresource,
    Verdict,
)
from trainyard.kinds.kind import Kind
from trainyard.kinds.table import KINDS

if TYPE_CHECKING:
    from trainyard.embedded.resources.shape import Shape
    from trainyard.schema.problems import Problem

_SCALE = Subresource("Scale", WRITE_STATUS, ("autoscaling", "v1"))
_ORDER = 10_000
_QUEUES = KINDS["Queue"].full_name


class _Custom(Served):
    def judge(self, obj: Object, old: Object | None) -> Verdict:
        """Prune by the definition's schema, then apply the rules of the kind.

        The rules also see into pod templates, where nothing is pruned: what is unknown there is
        refused, because a command that was silently left out would run something else.
        """
        from trainyard.kinds import admission
        from trainyard.schema import structural

        found = super().decoded(obj)
        if found.malformed:
            return Verdict(obj, found.malformed)
        found.obj.pop("status", None)  # it is written on its own: here the old one stays
        pruned = structural.prune(found.obj, self.schema())
        admitted = admission.admit(pruned.obj, old)
        warnings = [problem.detail for problem in admitted.warnings]
        unknown = [*found.unknown, *pruned.unknown]
        kept = {"status": old["status"]} if old is not None and "status" in old else {}
        return Verdict({**admitted.obj, **kept}, (), admitted.errors, unknown, warnings)

    def pruned(self, obj: Object) -> tuple[Object, Iterable[Problem]]:
        from trainyard.schema import structural

        pruned = structural.prune(obj, self.schema())
        return pruned.obj, pruned.unknown

    def decoded(self, obj: Object) -> Shape:
        """By the definition's own schema no status may be stored of which it does not hold."""
        from trainyard.schema import structural

        found, schema = super().decoded(obj), self.schema()["properties"].get("status")
        if found.malformed or schema is None or "status" not in obj:
            return found
        return replace(found, errors=structural.check(obj["status"], schema, ("status",)))

    def check_references(self, obj: Object, old: Object | None, listed: Listed) -> None:
        """A job's queue has to be there once any was made by hand."""
        if old is not None and named_queue(old) == named_queue(obj):
            return
        if KINDS[self.kind].is_job and (cause := unknown_queue(obj, listed(_QUEUES))):
            raise self.refused(obj, cause)

    def is_at_rest(self, obj: Object) -> bool:
        return (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    def columns(self) -> tuple[Column, ...]:
        return _columns(self.kind)

    def schema(self) -> Object:
        return KINDS[self.kind].schema

    def to_scale(self, obj: Object) -> Object:
        """`spec.replicas` is `spec.elastic.expectedReplicas`."""
        metadata = obj["metadata"]
        status = obj.get("status") or {}
        kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        elastic = (obj.get("spec") or {}).get("elastic")
        if not isinstance(elastic, dict) or "expectedReplicas" not in elastic:
            text = "Invalid value: the job cannot be scaled: it is not elastic; "
            raise self.refused(obj, Cause("spec", text + "create it with spec.elastic.enabled"))
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {key: metadata[key] for key in kept if key in metadata},
            "spec": {"replicas": elastic["expectedReplicas"]},
            "status": {
                "replicas": status.get("replicas", 0),
                "selector": status.get("selector", ""),
            },
        }

    def from_scale(self, obj: Object, scale: Object) -> Object:
        replicas = (scale.get("spec") or {}).get("replicas", 0)
        if replicas < 0:
            text = f"Invalid value: {replicas}: must be greater than or equal to 0"
            raise self.refused(obj, Cause("spec.replicas", text))
        spec = obj["spec"]
        version = (scale.get("metadata") or {}).get("resourceVersion")
        if version not in (None, "", "0", obj["metadata"]["resourceVersion"]):
            raise conflict(self.name, obj["metadata"]["name"])
        spec["elastic"]["expectedReplicas"] = replicas
        return obj


@cache
def _columns(kind: str) -> tuple[Column, ...]:
    """The `additionalPrinterColumns` of a definition."""
    version = KINDS[kind].crd["spec"]["versions"][0]
    custom = tuple(
        Column(
            column["name"],
            _json_path(column["jsonPath"], column["type"]),
            "string" if column["type"] == "date" else column["type"],
            column.get("priority", 0),
            description=column.get("description", ""),
        )
        for column in version.get("additionalPrinterColumns", ())
    )
    return (NAME, *custom) if custom else (NAME, AGE)


def _json_path(path: str, type_: str) -> Cell:
    """The simple JSON paths of printer columns: `.a.b`, `.a[0].b` and `.a[?(@.type=="X")].b`."""
    steps = re.findall(r"\[\?\(@\.(\w+)==[\"']([^\"']*)[\"']\)\]|\[(\d+)\]|\.?([\w/-]+)", path)

    def cell(obj: Object) -> Any:
        value: Any = obj
        for key, wanted, index, field in steps:
            if field:
                value = value.get(field) if isinstance(value, dict) else None
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


def _served(place: int, kind: Kind) -> Served:
    return _Custom(
        kind.resource,
        order=_ORDER + place,
        short_names=kind.short_names,
        status=True,
        generation=True,
        subresources={"scale": _SCALE} if kind.elastic else {},
        custom=True,
        needs_version=True,
    )


SERVED = tuple(_served(place, kind) for place, kind in enumerate(KINDS.values()))
