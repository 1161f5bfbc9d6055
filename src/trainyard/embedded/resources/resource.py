"""What a resource of the embedded API server may define, with a default for everything.

A file in `served` defines one resource or several. Plain data are fields of `Served`; behaviour is
a method of a class derived from it. The methods for writing are
Kubernetes' own strategies (the `PrepareForCreate` and friends of its registries), reduced to what
an embedded cluster needs.
https://github.com/kubernetes/kubernetes/tree/master/pkg/registry
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from trainyard.embedded.api_errors import StatusCause, invalid, no_such_path
from trainyard.embedded.resources.printer_columns import AGE, NAME, Column
from trainyard.kube.resources import Resource
from trainyard.schema.dataclass import dataclass
from trainyard.schema.object_names import is_dns_subdomain
from trainyard.schema.problems import REQUIRED, Problem

if TYPE_CHECKING:
    from trainyard.embedded.resources.decoding import Decoded

Object = dict[str, Any]
Present = Callable[[], Iterable[Object]]
"""The objects of a resource, with those that are being written."""
ListObjects = Callable[[str], Iterable[Object]]
"""The objects of any resource, by its name."""
Messages = Mapping[str, str]
"""Protobuf messages by name: number, JSON name and type of each field. Types: str, int, bool,
bytes, a message's name; `?` after it keeps a zero value (a pointer in Go), `[]` repeats, `{}` is a
map from strings."""

READ_VERBS = ("get", "list", "watch")
ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
PROXY_VERBS = ("create", "delete", "get", "patch", "update")
WRITE_STATUS = ("get", "patch", "update")
SCHEMAS = "#/components/schemas/"
"""Where OpenAPI documents of version 3 keep what they refer to."""
META = "1 metadata ObjectMeta, "
"""The first field of every message that is an object."""


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource; its handler is chosen by name in `apiserver.router`."""

    kind: str
    verbs: tuple[str, ...]
    api: tuple[str, str] | None = None
    """Group and version of `kind`; None: those of the resource."""
    is_discoverable: bool = True
    """Discovery lists it."""


class Validation(NamedTuple):
    """The result of validating an object."""

    obj: Object
    malformed: Sequence[Problem] = ()
    """What its types cannot hold."""
    errors: Sequence[Problem] = ()
    unknown: Sequence[Problem] = ()
    """Unknown fields; they are no longer in `obj`."""
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Served:
    """One resource, as it is served."""

    resource: Resource
    order: int = 1000
    """Where it stands in lists of resources: the lowest first, equal ones by name."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    status: bool = False
    """It has a status, written as a subresource only."""
    created_with_status: bool = False
    """The status is part of a create, and owned by its author."""
    generation: bool = False
    """metadata.generation counts the changes of spec."""
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    """Those besides status."""
    printer_columns: tuple[Column, ...] = (NAME, AGE)
    selectable: frozenset[str] = frozenset()
    """Fields for `--field-selector`, besides name and namespace."""
    messages: Messages = field(default_factory=dict)
    """Protobuf schema of its objects; kubectl's typed clients send a few kinds so."""
    definition: str = ""
    """The name of the official schema of its objects; "" for custom kinds."""
    unset: Mapping[str, Any] = field(default_factory=dict)
    """What its objects have besides metadata before a field is set; no manager owns it."""
    custom: bool = False
    """Defined by a CustomResourceDefinition, whose lists have no keys to merge by."""
    view_of: str = ""
    """The resource whose objects this one shows in another API group; it stores none."""
    needs_version: bool = False
    """An update must say which version it is based on."""
    created_by_update: bool = False
    """An update of an absent object creates it."""
    returns_deleted: bool = False
    """A deletion answers with the object, even where it is deleted at once."""
    alternative: str = ""
    """The cluster does not act on the kind: what users can do instead."""

    @property
    def name(self) -> str:
        """The registry's key, as written for kubectl: `pods`, `queues.scheduler.…`."""
        return self.resource.full_name

    @property
    def kind(self) -> str:
        return self.resource.kind

    @property
    def is_read_only(self) -> bool:
        """Its objects are part of the program and cannot be written."""
        return self.verbs == READ_VERBS

    def discoverable_subresources(self) -> Iterable[tuple[str, Subresource]]:
        """The subresources that discovery lists."""
        if self.status:
            yield "status", Subresource(self.kind, WRITE_STATUS)
        yield from (
            (name, each) for name, each in self.subresources.items() if each.is_discoverable
        )

    # Writing.

    def decode(self, obj: Object) -> Decoded:
        """Decode an object (taken over) by its schema."""
        from trainyard.embedded.resources.decoding import decode

        return decode(obj, self.definition)

    def prune(self, obj: Object) -> tuple[Object, Iterable[Problem]]:
        """Remove the fields that a CustomResourceDefinition does not know; returns both."""
        return obj, ()

    def validate(self, obj: Object, old: Object | None) -> Validation:
        """Validate an object (taken over) that is new, or replaces `old`."""
        found = self.decode(obj)
        errors = [*found.errors]
        if not found.malformed and all(each.message != REQUIRED for each in errors):
            errors += self.rules(found.obj, old)
        return Validation(found.obj, found.malformed, errors, found.unknown)

    def rules(self, obj: Object, old: Object | None) -> Iterable[Problem]:
        """Rules beyond the schema, for a new object or one that replaces `old`: Kubernetes' own,
        and what the cluster's loops rely on."""
        return ()

    def status_rules(self, obj: Object) -> Iterable[Problem]:
        """Rules for a status that is written, beyond its schema."""
        return ()

    def unusable(self, obj: Object) -> Iterable[Problem]:
        """Why the cluster cannot work with a stored object that was valid when it was written."""
        return ()

    def is_name(self, name: str) -> bool:
        """Whether the name is valid."""
        return is_dns_subdomain(name)

    def check_references(self, obj: Object, old: Object | None, list_objects: ListObjects) -> None:
        """Refuse an object that references another one that has to exist and does not."""

    def prepare_create(self, obj: Object, present: Present) -> None:
        """Complete an object about to be created; its status is dropped."""
        if self.status:
            obj.pop("status", None)

    def allocate(self, obj: Object, present: Present) -> None:
        """Complete a new object with fields that are assigned, and so owned by no manager."""

    def prepare_update(self, new: Object, old: Object, present: Present) -> None:
        """Complete an object about to replace `old`, or refuse the change."""

    def prepare_part(self, subresource: str, new: Object, old: Object) -> None:
        """As `prepare_update`, for a write of a subresource; undoes other changes of `new`."""

    def check_delete(self, name: str) -> None:
        """Refuse to delete an object that must stay."""

    def grace_seconds(self, obj: Object, asked: int | None) -> int:
        """Seconds between the request to delete an object and its deletion."""
        return 0

    def mark_deleting(self, obj: Object) -> None:
        """Change an object that is being deleted, such as its phase."""

    def blocks_deletion(self, obj: Object) -> bool:
        """Whether a deleted object has to stay for now, although it has no finalizers."""
        return False

    def refused(self, obj: Object, *causes: StatusCause) -> Exception:
        """The error Invalid for an object, to be raised."""
        metadata = obj["metadata"]
        name = metadata.get("name") or metadata.get("generateName") or ""
        return invalid(self.kind, self.resource.group, name, causes)

    def is_rarely_read(self, obj: Object) -> bool:
        """Nothing here follows the object any more: only its JSON is kept in memory."""
        return False

    # Reading.

    def initial_objects(self) -> Sequence[Object]:
        """The objects that every cluster has; those of a read-only resource are not stored."""
        return ()

    def columns(self) -> tuple[Column, ...]:
        """What `kubectl get` prints."""
        return self.printer_columns

    def selected(self, obj: Object, path: tuple[str, ...]) -> Any:
        """What a field selector compares; None where the object has no such field."""
        value: Any = obj
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def schema(self) -> Object:
        """The OpenAPI schema for clients."""
        described = {"type": "object", "description": f"{self.kind} of {self.resource.api_version}"}
        if not self.definition:
            return {**described, "x-kubernetes-preserve-unknown-fields": True}
        from trainyard.schema import kubernetes_schemas

        return {**openapi(kubernetes_schemas.definitions("served")[self.definition]), **described}

    def to_view(self, obj: Object) -> Object:
        """A stored object as this view shows it; only for a resource with `view_of`."""
        return obj

    def from_view(self, obj: Object) -> Object:
        """The inverse of `to_view`."""
        return obj

    def to_scale(self, obj: Object) -> Object:
        """The Scale (autoscaling/v1) of an object; only with a subresource `scale`."""
        raise no_such_path()

    def from_scale(self, obj: Object, scale: Object) -> Object:
        """`obj` (taken over) with the replicas of `scale`."""
        raise no_such_path()


def openapi(schema: Any) -> Any:
    """An official schema as OpenAPI writes it, with full references."""
    if isinstance(schema, list):
        return [openapi(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        return reference(schema["$ref"])
    return {key: openapi(value) for key, value in schema.items()}


def reference(name: str) -> Object:
    """A reference to one of the official schemas."""
    return {"$ref": f"{SCHEMAS}{name}"}
