"""Jobs, TensorBoards, nodes and namespaces, as the controller caches them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

from trainyard.kinds.kind_registry import Kind
from trainyard.kinds.shared.labels import OPERATOR
from trainyard.schema.dataclass import dataclass


class JobKey(NamedTuple):
    """Identifies a job; as a text, `pytorchtrainingjob/default/mnist`."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One stored job, or TensorBoard. `raw` is the whole object, and must never be changed."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    is_deleting: bool
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def key(self) -> JobKey:
        """The job's key in the queue."""
        return JobKey(self.kind.kind, self.namespace, self.name)

    @property
    def status(self) -> dict[str, Any] | None:
        """The stored status; None where there is none, or something that is no object."""
        found = self.raw.get("status")
        return found if isinstance(found, dict) else None

    @property
    def manager(self) -> str:
        """The other controller that manages the job; "" if this one does (decision 173)."""
        spec = self.raw.get("spec")
        named = spec.get("managedBy") if isinstance(spec, dict) else None
        return str(named) if named and named != OPERATOR else ""

    @classmethod
    def decode(cls, kind: Kind, raw: dict[str, Any]) -> JobRecord:
        """From a stored object of that kind; `raw` is changed and kept."""
        raw |= {"apiVersion": kind.api_version, "kind": kind.kind}  # lists leave them out
        metadata = raw["metadata"]
        metadata.pop("managedFields", None)
        return cls(
            kind=kind,
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
            generation=int(metadata.get("generation") or 0),
            is_deleting=bool(metadata.get("deletionTimestamp")),
            raw=raw,
        )


@dataclass(frozen=True, slots=True)
class Node:
    """A node, reduced to whether it is ready. A controller may lack the right to list nodes."""

    name: str
    uid: str
    resource_version: str
    is_ready: bool
    namespace: str = ""

    @classmethod
    def decode(cls, obj: Mapping[str, Any]) -> Node:
        """From a `v1` Node; one without a Ready condition counts as ready: it is new."""
        conditions = (obj.get("status") or {}).get("conditions") or ()
        ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), "True")
        metadata = obj["metadata"]
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            resource_version=metadata.get("resourceVersion", ""),
            is_ready=ready == "True",
        )


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace whose labels match the selector."""

    name: str
    uid: str
    resource_version: str
    namespace: str = ""

    @classmethod
    def decode(cls, obj: Mapping[str, Any]) -> Namespace:
        """From a `v1` Namespace."""
        metadata = obj["metadata"]
        return cls(metadata["name"], metadata["uid"], metadata.get("resourceVersion", ""))
