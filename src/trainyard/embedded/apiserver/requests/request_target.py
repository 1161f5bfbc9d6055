"""Parses the path of a request into resource, namespace, name and subresource."""

from __future__ import annotations

from collections.abc import Callable

from trainyard.embedded.api_errors import no_such_path
from trainyard.embedded.resources.resource import Served
from trainyard.kube.resources import NAMESPACES
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """One collection (no name), object, or subresource of an object."""

    served: Served
    namespace: str | None
    """None: all namespaces, or a cluster-wide kind."""
    name: str
    subresource: str

    @property
    def place(self) -> tuple[str, str, str]:
        """The registry's coordinates of the object."""
        return self.storage, self.namespace or "", self.name

    @property
    def storage(self) -> str:
        """The resource under which the objects are stored."""
        return self.served.view_of or self.served.name


PROXY = "proxy"
"""The subresource below which paths belong to the proxied server."""
_OF_NAMESPACES = ("status", "finalize")
"""Below a namespace, these are no resources: kube-apiserver's namespaceSubresources."""


At = Callable[[str, str, str], Served | None]
"""What is served at a group, version and plural."""


def parse(parts: list[str], at: At) -> Target:
    """The target of a path below `/api` or `/apis`, split at its slashes; raises NotFound."""
    group, version, *rest = ["", *parts[1:]] if parts[0] == "api" else parts[1:]
    namespace = None
    if len(rest) >= 3 and rest[0] == NAMESPACES.plural and rest[2] not in _OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    served = at(group, version, rest[0])
    if served is None or (len(rest) > 3 and rest[2] != PROXY):
        raise no_such_path()
    name = rest[1] if len(rest) > 1 else ""
    if namespace is not None and not served.resource.namespaced:
        raise no_such_path()
    if name and served.resource.namespaced and namespace is None:
        raise no_such_path()
    return Target(served, namespace, name, rest[2] if len(rest) > 2 else "")
