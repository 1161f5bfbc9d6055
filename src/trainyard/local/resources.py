"""The one table of what the embedded API server serves. Adding a kind is adding a row.

Job kinds come from `trainyard.api.kinds`; their rows are derived, not repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType


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

_SCHEDULING = (
    Served(
        "scheduler.tensorstack.dev", "v1beta1", "podgroups", "PodGroup", short_names=("pg",),
        status=True, generation=True, custom=True,
    ),
    Served(
        "scheduler.tensorstack.dev", "v1beta1", "queues", "Queue", namespaced=False,
        short_names=("q",), status=True, generation=True, custom=True,
    ),
    Served(
        "tensorstack.dev", "v1beta1", "tensorboards", "TensorBoard", short_names=("tb",),
        status=True, generation=True, custom=True,
    ),
)  # fmt: skip


def _jobs() -> Iterator[Served]:
    for kind, plural, short, elastic in (
        ("PyTorchTrainingJob", "pytorchtrainingjobs", "pj", True),
        ("DeepSpeedJob", "deepspeedjobs", "dj", True),
        ("ColossalAIJob", "colossalaijobs", "caij", False),
        ("GenericJob", "genericjobs", "gj", False),
    ):
        yield Served(
            "batch.tensorstack.dev", "v1beta1", plural, kind, short_names=(short,),
            status=True, scale=elastic, generation=True, custom=True,
        )  # fmt: skip


def _table() -> Mapping[str, Served]:
    rows = (*_CORE, *_jobs(), *_SCHEDULING)
    return MappingProxyType({row.resource: row for row in rows})


SERVED: Mapping[str, Served] = _table()
"""Every served resource by its registry key; `view_of` rows hold no objects of their own."""
