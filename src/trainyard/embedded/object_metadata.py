"""Changes of metadata on every write: completion, immutable fields, deletion."""

from __future__ import annotations

import random
import time
import uuid

from trainyard.embedded.api_errors import StatusCause, bad_request, conflict
from trainyard.embedded.clock import now_text
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.resources.metadata_rules import generated_name
from trainyard.embedded.resources.resource import Served
from trainyard.embedded.storage.committer import Key
from trainyard.embedded.storage.journal import Object
from trainyard.schema.rules.common_rules import MOST_INT32
from trainyard.schema.times import from_unix

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_RETAINED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def complete(served: Served, obj: Object) -> Key:
    """Give a new object its name, UID and times; returns where it will be stored."""
    obj["apiVersion"], obj["kind"] = served.resource.api_version, served.kind
    metadata = obj.setdefault("metadata", {})
    namespace = ""
    if served.resource.namespaced:
        namespace = metadata.setdefault("namespace", "default")
    else:
        metadata.pop("namespace", None)
    name = metadata.get("name")
    if not name:
        prefix = metadata.get("generateName")
        if not prefix:
            text = "Required value: name or generateName is required"
            raise served.refused(obj, StatusCause("metadata.name", text, "FieldValueRequired"))
        suffix = "".join(random.choices(_NAME_ALPHABET, k=5))
        name = metadata["name"] = generated_name(prefix, suffix)
    version = metadata.get("resourceVersion") or ""
    if version.isdecimal() and version.strip("0"):  # Kubernetes ignores what is no version
        raise bad_request("resourceVersion should not be set on objects to be created")
    for field in (*_RETAINED, "resourceVersion", "generation", "selfLink"):
        metadata.pop(field, None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now_text()
    if served.generation:
        metadata["generation"] = 1
    return Key(served.name, namespace, name)


def check_preconditions(key: Key, uid: str | None, version: str | None, old: Object) -> None:
    """Raise Conflict where UID or resourceVersion differ from those of `old`."""
    present = old["metadata"]
    if uid not in (None, present["uid"]):
        raise conflict(
            key.resource,
            key.name,
            f"Precondition failed: UID in precondition: {uid}, "
            f"UID in object meta: {present['uid']}",
        )
    if version not in (None, present["resourceVersion"]):
        raise conflict(key.resource, key.name)


def retain(served: Served, new: Object, old: Object) -> None:
    """Restore the fields that no writer may change."""
    new["apiVersion"], new["kind"] = served.resource.api_version, served.kind
    wanted, present = new["metadata"], old["metadata"]
    wanted["resourceVersion"] = present["resourceVersion"]
    for field in (*_RETAINED, "name", "namespace", "generation"):
        keep(wanted, present, field)
    for field in ("finalizers", "labels", "annotations", "ownerReferences"):
        if not wanted.get(field):
            wanted.pop(field, None)
    if present.get("deletionTimestamp"):
        added = set(wanted.get("finalizers", ())) - set(present.get("finalizers", ()))
        if added:
            text = f"Forbidden: none can be added while it is being deleted: {sorted(added)}"
            raise served.refused(
                new, StatusCause("metadata.finalizers", text, "FieldValueForbidden")
            )


# https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/
def mark_deleted(served: Served, obj: Object, how: Deletion) -> None:
    """Mark `obj` as being deleted, with its grace period and the finalizer of its propagation."""
    metadata = obj["metadata"]
    seconds = min(served.grace_seconds(obj, how.grace_seconds), MOST_INT32)
    if "deletionTimestamp" in metadata:
        seconds = min(seconds, metadata.get("deletionGracePeriodSeconds", 0))
    elif served.generation:
        metadata["generation"] = metadata.get("generation", 1) + 1
    if metadata.get("deletionGracePeriodSeconds") != seconds:
        metadata["deletionTimestamp"] = from_unix(time.time() + seconds)
        metadata["deletionGracePeriodSeconds"] = seconds
    if how.propagation is not None:
        added = {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(how.propagation, [])
        finalizers = metadata["finalizers"] = [
            *(each for each in metadata.get("finalizers", ()) if each not in (FOREGROUND, ORPHAN)),
            *added,
        ]
        if not finalizers:
            del metadata["finalizers"]
    served.mark_deleting(obj)


def keep(new: Object, old: Object, field: str) -> None:
    """Restore the old value of `field`, or remove it where the old object has none."""
    if field in old:
        new[field] = old[field]
    else:
        new.pop(field, None)


def spec_differs(new: Object, old: Object) -> bool:
    """True when anything but metadata and status changed: what `generation` counts."""
    ignored = ("metadata", "status", "apiVersion", "kind")
    return any(
        new.get(field) != old.get(field)
        for field in new.keys() | old.keys()
        if field not in ignored
    )


def is_released(served: Served, obj: Object) -> bool:
    """Whether nothing keeps an object that is marked for deletion."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    return not served.blocks_deletion(obj) and not metadata.get("deletionGracePeriodSeconds")
