"""Eviction of pods, for `kubectl drain` (decision 300).

https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
"""

from __future__ import annotations

from trainyard.embedded import object_metadata
from trainyard.embedded.api_errors import bad_request
from trainyard.embedded.apiserver.http.http_messages import Request, Response
from trainyard.embedded.apiserver.requests import (
    delete_options,
    object_admission,
    request_body,
    response_encoding,
    write_options,
)
from trainyard.embedded.apiserver.requests.request_limits import shortened
from trainyard.embedded.apiserver.requests.request_target import Target
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.disruption_target import with_disruption_target
from trainyard.embedded.registry import Registry
from trainyard.embedded.storage.committer import Key
from trainyard.embedded.storage.journal import Object

_KIND, _VERSIONS = "Eviction", ("policy/v1", "policy/v1beta1")
_REASON, _MESSAGE = "EvictionByEvictionAPI", "Eviction API: evicting"


async def evict(registry: Registry, request: Request, target: Target) -> Response:
    """Mark a pod as evicted in its status, then delete it. There are no disruption budgets."""
    write_options.check_write(request, "CreateOptions")
    how = _wanted(request, target)
    dry_run = how.dry_run or write_options.is_dry_run(request)

    def mark(pod: Object) -> Object:
        object_metadata.check_preconditions(Key(*target.place), how.uid, how.resource_version, pod)
        return with_disruption_target(pod, _REASON, _MESSAGE)

    marked = await registry.update(*target.place, mark, subresource="status", dry_run=dry_run)
    uid = marked["metadata"]["uid"]  # its version is another now
    await registry.delete(
        *target.place, Deletion(how.grace_seconds, uid, None, how.propagation, dry_run)
    )
    return response_encoding.json_response(201, response_encoding.SUCCESS)


def _wanted(request: Request, target: Target) -> Deletion:
    """How the pod is to be deleted; raises BadRequest."""
    body, _ = request_body.body_object(request)
    kind, version = body.get("kind") or _KIND, body.get("apiVersion") or _VERSIONS[0]
    if kind != _KIND or version not in _VERSIONS:
        stated = shortened(f"{version} {kind}")
        raise bad_request(f"{stated} in the body is not an {_KIND} of {' or '.join(_VERSIONS)}")
    eviction = object_admission.decode_as({**body, "kind": kind, "apiVersion": _VERSIONS[0]}, _KIND)
    about = eviction.get("metadata") or {}
    if about.get("name") != target.name:
        raise bad_request("name in URL does not match name in Eviction object")
    if about.get("namespace") not in (None, "", target.namespace):
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return delete_options.parse_options(eviction.get("deleteOptions") or {}, {})
