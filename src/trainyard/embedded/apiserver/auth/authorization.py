"""Authorization: the cluster's owner may do everything, other users own namespaces (decision 88).

The rules are those that an administrator would write as RBAC. Every user may read everything but
Secrets. In their own namespaces users may write everything but what the cluster itself writes
(status, bindings). Objects without a namespace, such as Queues, belong to the cluster's owner.
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
from trainyard.machine.users import AllowList, User, uid_of, user_with_namespace
from trainyard.schema.dataclass import dataclass

_WRITTEN_BY_CLUSTER = ("status", "binding", "finalize")
_READABLE_SUBRESOURCES = ("", "status", "scale")
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


class AccessRequest(NamedTuple):
    """What a user asks to do: the attributes of a Kubernetes authorization request."""

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
        """The 403 error, with Kubernetes' message."""
        plural = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        place = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        why = (
            f'User "{who}" cannot {self.verb} resource "{plural}" in API group "{self.group}" '
            f"{place}"
        )
        return forbidden(self.full_name, self.name, why)


def access_request(request: Request, target: Target) -> AccessRequest:
    """The attributes of an HTTP request."""
    verb = _VERBS.get((request.method, bool(target.name)), "create")
    if request.flag("watch") and verb in READ_VERBS and not target.subresource:
        verb = "watch"
    resource = target.served.resource
    place = (target.namespace or "", target.name)
    return AccessRequest(verb, resource.group, resource.plural, target.subresource, *place)


@dataclass(frozen=True, slots=True)
class Authorizer:
    """Decides what users may do with the objects of a registry."""

    registry: Registry

    def check(self, request: Request, target: Target) -> None:
        """Raise Forbidden where the user of the request may not do so."""
        identity = request.identity
        if not identity.is_admin and not self.is_allowed(
            identity, access := access_request(request, target)
        ):
            raise access.refusal(identity.name)

    def is_allowed(self, identity: Identity, access: AccessRequest) -> bool:
        """Whether a user may do this."""
        if identity.is_admin:
            return True
        is_own = self._owns_namespace(identity, access)
        if access.verb in READ_VERBS and access.subresource in _READABLE_SUBRESOURCES:
            return is_own or (access.group, access.resource) != (SECRETS.group, SECRETS.plural)
        if (access.group, access.resource) == (NAMESPACES.group, NAMESPACES.plural):
            if access.verb == "create" and not access.subresource:
                return not access.name or _is_name_of_user(identity.user, access.name)
            return is_own and access.verb == "delete"
        return is_own and access.subresource not in _WRITTEN_BY_CLUSTER

    def may_read_logs(self, identity: Identity, namespace: str) -> bool:
        """Whether a user may read what programs in a namespace write."""
        return self.is_allowed(identity, AccessRequest("get", "", "pods", "log", namespace))

    def _owns_namespace(self, identity: Identity, access: AccessRequest) -> bool:
        namespace = access.namespace
        if (access.group, access.resource) == (NAMESPACES.group, NAMESPACES.plural):
            namespace = access.name
        try:
            found = self.registry.peek(NAMESPACES.full_name, "", namespace)
            return owner_uid(found) == identity.user.uid
        except (NotFound, Forbidden):
            return False

    async def ensure_namespace(self, identity: Identity) -> None:
        """Create the user's own namespace with their first request."""
        name = identity.user.namespace
        try:
            self.registry.peek(NAMESPACES.full_name, "", name)
        except NotFound:
            namespace: Object = {"metadata": {"name": name}}
            _write_owner(namespace, identity.user)
            await self.registry.create(NAMESPACES.full_name, namespace)


def mark_owner(identity: Identity, namespace: Object, allowed: AllowList) -> None:
    """Write the owner into a new namespace; raises Forbidden for names of other users.

    One that the cluster's owner makes in the name of a user who may use the cluster is that
    user's, who would make it with their first request: what runs there runs as them.
    """
    name = namespace["metadata"].get("name") or ""
    if identity.is_admin:
        user = user_with_namespace(name)
        if user is not None and allowed.admits(user):
            _write_owner(namespace, user)
        return
    user = identity.user
    if not _is_name_of_user(user, name):
        why = f"namespaces of yours are called {user.namespace}, or {user.namespace}-SOMETHING"
        raise forbidden(
            NAMESPACES.full_name, name, f'User "{identity.name}" cannot create it: {why}'
        )
    _write_owner(namespace, user)


def _write_owner(namespace: Object, user: User) -> None:
    metadata = namespace["metadata"]
    owner = {OWNER: user.name, OWNER_UID: str(user.uid)}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **owner}


def _is_name_of_user(user: User, name: str) -> bool:
    """Users may create namespaces called NAME or NAME-SOMETHING, if no other user has that name."""
    if name == user.namespace:
        return True
    return name.startswith(f"{user.namespace}-") and uid_of(name) is None
