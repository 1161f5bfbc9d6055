"""Checks kind, name and namespace of an object against the URL of the request."""

from __future__ import annotations

from collections.abc import Callable

from trainyard.embedded.api_errors import StatusCause, bad_request, invalid
from trainyard.embedded.apiserver.requests.request_limits import shortened
from trainyard.embedded.apiserver.requests.request_target import Target
from trainyard.embedded.resources.resource import Object


def check_kind(target: Target, obj: Object, *, applies: bool = False) -> None:
    """Refuse an object of another kind than the URL's. A custom kind has to be stated.

    `applies`: the object is a configuration for server-side apply.
    """
    served = target.served
    expected = served.resource.api_version
    absent = [key for key in ("kind", "apiVersion") if served.custom and not obj.get(key)]
    if absent:
        raise bad_request(
            f"the object does not say its {' and '.join(absent)}: "
            f"write kind: {served.kind} and apiVersion: {expected}"
        )
    kind, version = obj.get("kind") or served.kind, obj.get("apiVersion") or expected
    strict = applies or not served.custom or not isinstance(kind, str)
    if version != expected or (kind != served.kind and strict):
        raise bad_request(
            f"{shortened(str(version))} {shortened(str(kind))} in the body does not fit the URL, "
            f"which is for {expected} {served.kind}"
        )
    if kind != served.kind:
        raise _immutable(target, "kind", kind, served.kind)


def check_kept(target: Target, new: Object, old: Object, *, is_patch: bool) -> None:
    """Refuse changes of name and kind, and changes of the UID by a patch."""
    check_name(target, new)
    if is_patch and not new.get("apiVersion"):
        raise bad_request("the apiVersion of an object cannot be removed")
    for key in ("apiVersion", "kind"):
        found = new.get(key) or ("" if target.served.custom else old[key])
        if found != old[key]:
            raise _immutable(target, key, found, old[key])
    namespace = new["metadata"].get("namespace") or target.namespace
    if namespace != target.namespace:
        raise bad_request(f"the namespace of the object is {target.namespace}, not {namespace}")
    served, version = target.served, new["metadata"].get("resourceVersion")
    if is_patch and served.needs_version and version in (None, "", "0"):
        text = "Invalid value: must be specified for an update"
        raise served.refused(old, StatusCause("metadata.resourceVersion", text))
    uid = new["metadata"].get("uid")
    if is_patch and uid not in (None, "", old["metadata"]["uid"]):
        text = f"Invalid value: {shortened(str(uid))!r}: field is immutable"
        raise served.refused(old, StatusCause("metadata.uid", text))


def checked_patch(target: Target, found: object, *, lenient: bool) -> Object:
    """The result of a patch, if it is an object with metadata.

    Otherwise raises Invalid, or BadRequest where `lenient` and the metadata are missing.
    """
    metadata = found.get("metadata") if isinstance(found, dict) else None
    if isinstance(found, dict) and isinstance(metadata, dict):
        return found
    text = "the patch does not leave an object with metadata"
    if lenient and metadata is None:
        raise bad_request(text)
    served = target.served
    raise invalid(served.kind, served.resource.group, target.name, [StatusCause("patch", text)])


def place(target: Target, obj: Object) -> None:
    """Fill in name and namespace from the URL; raises BadRequest where the body has others."""
    if obj.get("metadata") is None:
        obj["metadata"] = {}
    metadata = obj["metadata"]
    if not isinstance(metadata, dict):
        raise bad_request("metadata is not an object")
    if target.namespace is not None:
        found = metadata["namespace"] = metadata.get("namespace") or target.namespace
        if found != target.namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                f"request: {found} and {target.namespace}"
            )
    if target.name:
        metadata.setdefault("name", target.name)
        check_name(target, obj)


def scale_replacer(target: Target) -> Callable[[object, object], object]:
    """A merge function that takes the body, a Scale, as it is and checks its kind and name."""

    def taken(_: object, body: object) -> object:
        if isinstance(body, dict):
            for key, wanted in (("kind", "Scale"), ("apiVersion", "autoscaling/v1")):
                if body.get(key) != wanted:
                    raise bad_request(f"{key} of the body must be {wanted}")
            metadata = body.get("metadata")
            check_name(target, {"metadata": metadata if isinstance(metadata, dict) else {}})
        return body

    return taken


def check_name(target: Target, obj: Object) -> None:
    """Refuse another name than that of the URL."""
    found = obj["metadata"].get("name")
    if found != target.name:
        raise bad_request(
            f"the name of the object ({found}) does not match the name on the URL ({target.name})"
        )


def _immutable(target: Target, key: str, found: object, wanted: str) -> Exception:
    text = f"Invalid value: {shortened(str(found))!r}: must be {wanted}"
    resource = target.served.resource
    return invalid(resource.kind, resource.group, target.name, [StatusCause(key, text)])
