"""The one table of what the embedded API server serves. Adding a kind is adding a row.

The kinds defined here by CustomResourceDefinitions come from `trainyard.kinds.table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainyard.kinds.table import KINDS


@dataclass(frozen=True, slots=True)
class Served:
    """One resource: its names, and which subresources it has."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    singular: str = ""
    categories: tuple[str, ...] = ()
    status: bool = False
    scale: bool = False
    generation: bool = False
    """metadata.generation counts the changes of spec."""
    custom: bool = False
    """Defined by a CustomResourceDefinition, so printed and patched by its schema."""
    read_only: bool = False
    view_of: str = ""
    """The resource whose objects this one shows in another group's shape."""

    @property
    def resource(self) -> str:
        """The registry's key, as written for kubectl: `pods`, `queues.scheduler.…`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """As written in an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """The kind of a collection."""
        return f"{self.kind}List"


_CORE = (
    Served("", "v1", "namespaces", "Namespace", namespaced=False, short_names=("ns",), status=True),
    Served("", "v1", "nodes", "Node", namespaced=False, short_names=("no",), status=True),
    Served(
        "", "v1", "pods", "Pod", short_names=("po",), categories=("all",), status=True,
        generation=True,
    ),
    Served(
        "", "v1", "services", "Service", short_names=("svc",), categories=("all",), status=True
    ),
    Served("", "v1", "endpoints", "Endpoints", short_names=("ep",)),
    Served("", "v1", "secrets", "Secret"),
    Served("", "v1", "configmaps", "ConfigMap", short_names=("cm",)),
    Served("", "v1", "events", "Event", short_names=("ev",)),
    Served(
        "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",),
        status=True,
    ),
    Served("", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",)),
    Served(
        "events.k8s.io", "v1", "events", "Event", short_names=("ev",), view_of="events",
    ),
    Served("coordination.k8s.io", "v1", "leases", "Lease"),
    Served(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
        namespaced=False, short_names=("crd", "crds"), read_only=True,
    ),
)  # fmt: skip


def _custom() -> Iterator[Served]:
    for kind in KINDS.values():
        yield Served(
            kind.group,
            kind.version,
            kind.plural,
            kind.kind,
            namespaced=kind.namespaced,
            short_names=kind.short_names,
            status=True,
            scale=kind.elastic,
            generation=True,
            custom=True,
        )


def _table() -> Mapping[str, Served]:
    rows = (*_CORE, *_custom())
    return MappingProxyType({row.resource: row for row in rows})


SERVED: Mapping[str, Served] = _table()
"""Every served resource by its registry key; `view_of` rows hold no objects of their own."""
