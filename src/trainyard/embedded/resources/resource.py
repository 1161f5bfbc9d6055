"""What a resource of the embedded API server may define: its row, with a default for everything.

A file beside this one that has a `SERVED` is a resource, or several. What is plain data is given
to `Served`; what takes code is a method of a class derived from it. The methods about writing are
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
    from trainyard.embedded.resources.decoding import Shape

Object = dict[str, Any]
Present = Callable[[], Iterable[Object]]
"""The objects of a resource, with those that are being written."""
Listed = Callable[[str], Iterable[Object]]
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
    """What is found below an object; how it is answered, `apiserver` knows by its name."""

    kind: str
    verbs: tuple[str, ...]
    api: tuple[str, str] | None = None
    """Group and version of `kind`; None: those of the resource."""
    listed: bool = True
    """Discovery tells of it."""


class Verdict(NamedTuple):
    """What is to be said of an object that someone wants stored."""

    obj: Object
    malformed: Sequence[Problem] = ()
    """What its types cannot hold."""
    errors: Sequence[Problem] = ()
    unknown: Sequence[Problem] = ()
    """Fields that nobody knows; they are no longer in `obj`."""
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
    """Whoever creates one says its status too, and owns it."""
    generation: bool = False
    """metadata.generation counts the changes of spec."""
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    """Those besides status."""
    printed: tuple[Column, ...] = (NAME, AGE)
    selectable: frozenset[str] = frozenset()
    """Fields for `--field-selector`, besides name and namespace."""
    messages: Messages = field(default_factory=dict)
    """How its objects look in protobuf; kubectl's typed clients send a few kinds so."""
    definition: str = ""
    """Its objects are decoded by, and shown with, this one of Kubernetes' own schemas."""
    unset: Mapping[str, Any] = field(default_factory=dict)
    """What its objects have besides metadata before anybody set a field: nobody owns it."""
    custom: bool = False
    """Defined by a CustomResourceDefinition, whose lists have no keys to merge by."""
    view_of: str = ""
    """The resource whose objects this one shows in another group's shape; it stores none."""
    needs_version: bool = False
    """An update must say which version it is based on."""
    created_by_update: bool = False
    """An update of what is not there creates it."""
    returns_deleted: bool = False
    """A deletion answers with the object, even where it is gone at once."""
    instead: str = ""
    """Nothing here acts on the kind: what whoever wants one may do."""

    @property
    def name(self) -> str:
        """The registry's key, as written for kubectl: `pods`, `queues.scheduler.…`."""
        return self.resource.full_name

    @property
    def kind(self) -> str:
        return self.resource.kind

    @property
    def is_read_only(self) -> bool:
        """Nobody may write its objects, which are part of the program."""
        return self.verbs == READ_VERBS

    def described(self) -> Iterable[tuple[str, Subresource]]:
        """The subresources of which discovery tells."""
        if self.status:
            yield "status", Subresource(self.kind, WRITE_STATUS)
        yield from ((name, each) for name, each in self.subresources.items() if each.listed)

    # Writing.

    def decoded(self, obj: Object) -> Shape:
        """An object (taken over) as its types hold it."""
        from trainyard.embedded.resources.decoding import shape

        return shape(obj, self.definition)

    def pruned(self, obj: Object) -> tuple[Object, Iterable[Problem]]:
        """An object that was decoded without the fields that only a definition of its own tells
        to be unknown, and those."""
        return obj, ()

    def judge(self, obj: Object, old: Object | None) -> Verdict:
        """What is wrong with an object (taken over) that is new, or takes the place of `old`."""
        found = self.decoded(obj)
        errors = [*found.errors]
        if not found.malformed and all(each.message != REQUIRED for each in errors):
            errors += self.rules(found.obj, old)
        return Verdict(found.obj, found.malformed, errors, found.unknown)

    def rules(self, obj: Object, old: Object | None) -> Iterable[Problem]:
        """What may not be in an object that has what its schema asks for, or in one that takes
        the place of `old`: Kubernetes' own rules, and what the loops here rely on."""
        return ()

    def status_rules(self, obj: Object) -> Iterable[Problem]:
        """What may not be in a status that someone writes."""
        return ()

    def unusable(self, obj: Object) -> Iterable[Problem]:
        """What makes a stored object, valid when it was written, one that nothing here can work
        with."""
        return ()

    def is_name(self, name: str) -> bool:
        """Whether an object may be called so."""
        return is_dns_subdomain(name)

    def check_references(self, obj: Object, old: Object | None, listed: Listed) -> None:
        """Refuse an object that names what has to be there and is not; `old`: what it replaces."""

    def prepare_create(self, obj: Object, present: Present) -> None:
        """Complete an object about to be created; a status it came with does not count."""
        if self.status:
            obj.pop("status", None)

    def allocate(self, obj: Object, present: Present) -> None:
        """Complete a new object with what nobody asked for, and so nobody owns."""

    def prepare_update(self, new: Object, old: Object, present: Present) -> None:
        """Complete an object about to take the place of `old`, or refuse the change."""

    def prepare_part(self, subresource: str, new: Object, old: Object) -> None:
        """The same where a subresource was written, and `new` may have more that is changed."""

    def check_delete(self, name: str) -> None:
        """Refuse to delete what must stay."""

    def grace_seconds(self, obj: Object, asked: int | None) -> int:
        """How long an object may take to go after someone asked for its deletion."""
        return 0

    def begin_delete(self, obj: Object) -> None:
        """Show in an object that it is being deleted."""

    def is_held(self, obj: Object) -> bool:
        """An object that is being deleted must stay for now, although it has no finalizers."""
        return False

    def refused(self, obj: Object, *causes: StatusCause) -> Exception:
        """The refusal of an object, to be raised."""
        metadata = obj["metadata"]
        name = metadata.get("name") or metadata.get("generateName") or ""
        return invalid(self.kind, self.resource.group, name, causes)

    def is_rarely_read(self, obj: Object) -> bool:
        """Nothing here follows the object any more: only its JSON is kept in memory."""
        return False

    # Reading.

    def initial(self) -> Sequence[Object]:
        """The objects that every cluster has; those of a read-only resource are not stored."""
        return ()

    def columns(self) -> tuple[Column, ...]:
        """What `kubectl get` prints."""
        return self.printed

    def selected(self, obj: Object, path: tuple[str, ...]) -> Any:
        """What a field selector compares; None where the object has no such field."""
        value: Any = obj
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def schema(self) -> Object:
        """The OpenAPI schema that clients are shown."""
        described = {"type": "object", "description": f"{self.kind} of {self.resource.api_version}"}
        if not self.definition:
            return {**described, "x-kubernetes-preserve-unknown-fields": True}
        from trainyard.schema import kubernetes_schemas

        return {**openapi(kubernetes_schemas.definitions("served")[self.definition]), **described}

    def shown(self, obj: Object) -> Object:
        """A stored object in the shape of a view; only of a resource with `view_of`."""
        return obj

    def stored(self, obj: Object) -> Object:
        """The inverse of `shown`."""
        return obj

    def to_scale(self, obj: Object) -> Object:
        """The Scale (autoscaling/v1) of an object; only with a subresource `scale`."""
        raise no_such_path()

    def from_scale(self, obj: Object, scale: Object) -> Object:
        """`obj` (taken over) with the replicas of `scale`."""
        raise no_such_path()


def openapi(schema: Any) -> Any:
    """A schema of the API's own dialect in that of OpenAPI: references are spelt out."""
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
