"""ConfigMaps and Secrets that bring a script or function to a cluster, and go with its job
(decision 157).

Such an object names its job in an annotation, as a manifest cannot know the job's UID; who submits
it makes the job its owner once the job is there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from trainyard.client.job_view import Job
from trainyard.kinds.shared import labels
from trainyard.kube.client import Client
from trainyard.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from trainyard.kube.resources import CONFIG_MAPS, SECRETS, Resource

Object = dict[str, Any]


_KINDS = (CONFIG_MAPS.kind, SECRETS.kind)


def owner_of(body: Object) -> str:
    """The name of the job whose script or function an object brings; "" of everything else."""
    annotations = body["metadata"].get("annotations") or {}
    return str(annotations.get(labels.SCRIPT_OF, "")) if body.get("kind") in _KINDS else ""


async def create(client: Client, resource: Resource, body: Object) -> None:
    """Create the object, in the place of one of an earlier job of that name.

    That one may be waiting to be collected, and must not be taken from under the new job.
    """
    metadata = body["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    with suppress(AlreadyExists):
        await client.create(resource, body)
        return
    with suppress(NotFound, Conflict):
        present = await client.get(resource, name, namespace)
        await client.delete(resource, name, namespace, uid=present["metadata"]["uid"])
    await client.create(resource, body)


async def set_owner(client: Client, resource: Resource, body: Object, job: Job) -> None:
    """Let the object be deleted with the job; where one may not say so, it stays."""
    owner = {
        "apiVersion": job.kind.api_version,
        "kind": job.kind.kind,
        "name": job.name,
        "uid": job.uid,
    }
    metadata, patch = body["metadata"], {"metadata": {"ownerReferences": [owner]}}
    with suppress(Forbidden, NotFound):
        await client.patch(resource, metadata["name"], patch, metadata["namespace"])
