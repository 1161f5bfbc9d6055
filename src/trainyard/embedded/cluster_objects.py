"""How scheduler, controllers and node agent read and write objects of a cluster.

The registry implements it in process. With an implementation for a kube-apiserver the same
scheduler and agent run on a real cluster. So reads are from memory, and only writes are awaited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trainyard.embedded.storage.journal import Object, Subscription
from trainyard.schema.dataclass import dataclass

Mutation = Callable[[Object], Object | None]
"""What a copy of an object becomes; None leaves the object as it is."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """How an object is to be deleted: DeleteOptions of meta/v1."""

    grace_seconds: int | None = None
    uid: str | None = None
    """Only the object with this UID."""
    resource_version: str | None = None
    """Only this version of it."""
    propagation: str | None = None
    """Background (the default), Foreground or Orphan."""
    dry_run: bool = False


PLAIN = Deletion()


class Objects(Protocol):
    """Objects by resource (`pods`, `queues.scheduler.…`), namespace ("" for none) and name.

    What is read is shared: never mutate it. Refusals are those of `trainyard.kube.errors`.
    """

    def get(self, resource: str, namespace: str, name: str) -> Object:
        """The object; raises NotFound."""

    def list(self, resource: str, namespace: str | None = None) -> list[Object]:
        """All objects, or those of one namespace, by name."""

    def subscribe(self, *resources: str) -> Subscription:
        """Changes of `resources`, after a synthetic ADDED for each present object."""

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; it yields what is queued and stops."""

    async def create(self, resource: str, obj: Object) -> Object:
        """Store a new object (taken over, do not touch it again); returns it completed."""

    async def update(
        self, resource: str, namespace: str, name: str, change: Mutation, *, subresource: str = ""
    ) -> Object:
        """Replace an object by `change(copy)`, atomically; None or no difference writes nothing.

        `subresource` "" keeps the status, "status" keeps all but the status, "binding" keeps
        nothing: a scheduler sets nodeName and a condition at once.
        """

    async def delete(
        self, resource: str, namespace: str, name: str, how: Deletion = PLAIN
    ) -> Object:
        """Delete an object, or mark it for deletion; returns its newest version."""
