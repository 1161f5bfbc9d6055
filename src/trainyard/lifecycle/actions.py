"""What `plan()` answers with: data only, carried out by the operator's executor.

The executor's part: write `status` first, with the resourceVersion it was computed from, and give
up the pass on a conflict; then the actions, in the order given, but
consecutive ones of one type and resource in parallel; then the events. `wake_at` asks for another
pass even if nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from datetime import datetime
from typing import Any

from trainyard.kinds.shared.workload import Generated, Manifest
from trainyard.kube.resources import Resource
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object; AlreadyExists with the job as its owner counts as done.

    `manifest()` builds it anew on each call, so that a thousand planned pods need no memory until
    their turn comes. `generated` names what the executor must fill in first.
    """

    resource: Resource
    name: str
    manifest: Callable[[], Manifest] = field(compare=False, repr=False)
    generated: Generated = Generated.NOTHING
    takes_over_unowned: bool = False
    """An object of that name that nobody owns is taken over, and otherwise left as it is."""

    def takeover(self, uid: str) -> Patch:
        """What makes the job the owner of an object that is there already."""
        ours = self.manifest()["metadata"]
        metadata = {key: ours[key] for key in ("labels", "ownerReferences")}
        return Patch(self.resource, self.name, uid, {"metadata": metadata})


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object if it still has this UID; NotFound counts as done.

    `grace_seconds` None: the object's own grace period; 0: by force.
    """

    resource: Resource
    name: str
    uid: str
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch of an object, if it still has this UID; NotFound counts as done.

    `patch`: a JSON merge patch, or the steps of a JSON patch (RFC 6902). `version`: the object's
    resourceVersion, where the patch holds for that one only; another ends the pass.
    """

    resource: Resource
    name: str
    uid: str
    patch: dict[str, Any] | list[dict[str, Any]]
    subresource: str = ""
    version: str = ""

    def guarded(self) -> dict[str, Any] | list[dict[str, Any]]:
        """What to send: the patch, for the object that it was meant for only."""
        if isinstance(self.patch, list):
            return [{"op": "test", "path": "/metadata/uid", "value": self.uid}, *self.patch]
        metadata = {**self.patch.get("metadata", {}), "uid": self.uid}
        if self.version:
            metadata["resourceVersion"] = self.version
        return {**self.patch, "metadata": metadata}


Action = Create | Delete | Patch


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event on the job; `type` is Normal or Warning."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """One pass. `status` None: as it is; else the whole new status."""

    status: dict[str, Any] | None
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    wake_at: datetime | None = None
    restarts: tuple[str, ...] = ()
    """Why replicas restart, a reason for each incident that the status takes in: `OOMKilled`."""
