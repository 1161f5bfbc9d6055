"""The kinds of `trainyard.kinds`, each as its CustomResourceDefinition has it served.

Their rules are those of `trainyard.kinds.admission`, the very function that the command line and
the controller use.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from trainyard.kinds.kind import Kind
from trainyard.kinds.table import KINDS
from trainyard.local.clock import age
from trainyard.local.failures import bad_request
from trainyard.local.resources.columns import AGE, NAME, Cell, Column
from trainyard.local.resources.queuenames import named_queue, unknown_queue
from trainyard.local.resources.resource import (
    WRITE_STATUS,
    Listed,
    Object,
    Served,
    Subresource,
    Verdict,
)

if TYPE_CHECKING:
    from trainyard.local.resources.shape import Shape

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

        if malformed := super().decoded(obj).malformed:
            return Verdict(obj, malformed)
        obj.setdefault("kind", self.kind)
        obj.setdefault("apiVersion", self.resource.api_version)
        pruned = structural.prune(obj, self.schema())
        admitted = admission.admit(pruned.obj, old)
        warnings = [problem.detail for problem in admitted.warnings]
        return Verdict(admitted.obj, (), admitted.errors, pruned.unknown, warnings)

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
        elastic = (obj.get("spec") or {}).get("elastic") or {}
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {key: metadata[key] for key in kept if key in metadata},
            "spec": {"replicas": elastic.get("expectedReplicas", 0)},
            "status": {
                "replicas": status.get("replicas", 0),
                "selector": status.get("selector", ""),
            },
        }

    def from_scale(self, obj: Object, scale: Object) -> Object:
        replicas = (scale.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
            raise bad_request(f"spec.replicas of a Scale is a number from 0, not {replicas!r}")
        spec = obj.setdefault("spec", {})
        if not isinstance(spec.get("elastic"), dict):
            name = obj["metadata"]["name"]
            raise bad_request(
                f"{self.kind} {name} cannot be scaled: it is not elastic; "
                "create it with spec.elastic.enabled"
            )
        version = (scale.get("metadata") or {}).get("resourceVersion")
        if version:
            obj["metadata"]["resourceVersion"] = version
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
