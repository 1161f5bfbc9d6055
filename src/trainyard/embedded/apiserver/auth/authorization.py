"""Who may do what: a cluster's owner everything, others what is theirs by namespace (decision 88).

The rules are those that a cluster's administrator would write as RBAC: everybody may look at
everything but Secrets; in a namespace of one's own one may do as one likes, but not write what the
cluster itself tells (status, bindings); what is nobody's, such as Queues, is the owner's.
"""

from __future__ import annotations

from typing import NamedTuple

from trainyard.embedded.api_errors import forbidden
from trainyard.embedded.apiserver.auth.request_identity import Identity
from trainyard.embedded.apiserver.http.http_messages import Request
from trainyard.embedded.apiserver.requests.request_target import Target
from trainyard.embedded.registry import Registry
from trainyard.embedded.resources.resource import READ_VERBS, Object
from trainyard.embedded.tenants import owner_uid
from trainyard.kube.embedded_contract import OWNER, OWNER_UID
from trainyard.kube.errors import Forbidden, NotFound
from trainyard.kube.resources import NAMESPACES, SECRETS
from trainyard.machine.users import User, uid_of
from trainyard.schema.dataclass import dataclass

_TOLD_BY_THE_CLUSTER = ("status", "binding", "finalize")
_SHOWN_TO_ALL = ("", "status", "scale")
"""Subresources that are no more than a part of the object."""
_VERBS = {
    ("GET", True): "get",
    ("HEAD", True): "get",
    ("GET", False): "list",
    ("HEAD", False): "list",
    ("PUT", True): "update",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
    ("DELETE", False): "deletecollection",
}


class Wish(NamedTuple):
    """What somebody wants to do, in the words of Kubernetes' authorization."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    """Empty: all of them, or a resource that has none."""
    name: str = ""

    @property
    def full_name(self) -> str:
        """`pods`, `queues.scheduler.…`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    def refusal(self, who: str) -> Forbidden:
        """403, in Kubernetes' words."""
        plural = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        place = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        why = (
            f'User "{who}" cannot {self.verb} resource "{plural}" in API group "{self.group}" '
            f"{place}"
        )
        return forbidden(self.full_name, self.name, why)


def wish_of(request: Request, target: Target) -> Wish:
    """What a request wants."""
    verb = _VERBS.get((request.method, bool(target.name)), "create")
    if request.flag("watch") and verb in READ_VERBS and not target.subresource:
        verb = "watch"
    resource = target.served.resource
    place = (target.namespace or "", target.name)
    return Wish(verb, resource.group, resource.plural, target.subresource, *place)


@dataclass(frozen=True, slots=True)
class Rights:
    """What each may do with the objects of a registry."""

    registry: Registry

    def check(self, request: Request, target: Target) -> None:
        """Raise Forbidden where the one who asks may not do so."""
        identity = request.identity
        if not identity.is_admin and not self.may(identity, wish := wish_of(request, target)):
            raise wish.refusal(identity.name)

    def may(self, identity: Identity, wish: Wish) -> bool:
        """Whether somebody may do something."""
        if identity.is_admin:
            return True
        is_mine = self._is_mine(identity, wish)
        if wish.verb in READ_VERBS and wish.subresource in _SHOWN_TO_ALL:
            return is_mine or (wish.group, wish.resource) != (SECRETS.group, SECRETS.plural)
        if (wish.group, wish.resource) == (NAMESPACES.group, NAMESPACES.plural):
            if wish.verb == "create" and not wish.subresource:
                return not wish.name or _is_called_after(identity.person, wish.name)
            return is_mine and wish.verb == "delete"
        return is_mine and wish.subresource not in _TOLD_BY_THE_CLUSTER

    def _is_mine(self, identity: Identity, wish: Wish) -> bool:
        namespace = wish.namespace
        if (wish.group, wish.resource) == (NAMESPACES.group, NAMESPACES.plural):
            namespace = wish.name
        try:
            found = self.registry.peek(NAMESPACES.full_name, "", namespace)
        except NotFound:
            return False
        return owner_uid(found) == identity.person.uid

    async def welcome(self, identity: Identity) -> None:
        """Make the namespace of somebody who comes for the first time."""
        name = identity.person.namespace
        try:
            self.registry.peek(NAMESPACES.full_name, "", name)
        except NotFound:
            namespace: Object = {"metadata": {"name": name}}
            mark(identity, namespace)
            await self.registry.create(NAMESPACES.full_name, namespace)


def mark(identity: Identity, namespace: Object) -> None:
    """Write into a new namespace to whom it belongs; raises Forbidden over its name."""
    if identity.is_admin:
        return
    metadata, person = namespace["metadata"], identity.person
    name = metadata.get("name") or ""
    if not _is_called_after(person, name):
        why = f"namespaces of yours are called {person.namespace}, or {person.namespace}-SOMETHING"
        raise forbidden(
            NAMESPACES.full_name, name, f'User "{identity.name}" cannot create it: {why}'
        )
    owner = {OWNER: person.name, OWNER_UID: str(person.uid)}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **owner}


def _is_called_after(person: User, name: str) -> bool:
    """A namespace may have this user's name, or one that begins with it and is nobody else's."""
    if name == person.namespace:
        return True
    return name.startswith(f"{person.namespace}-") and uid_of(name) is None
