"""ConfigMaps that bring a script to a cluster, and go with its job (decision 157).

Such a ConfigMap names its job in an annotation, as a manifest cannot know the job's UID; who
submits it makes the job its owner once the job is there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from trainyard.client.job_view import Job
from trainyard.kinds.shared import labels
from trainyard.kube.client import Client
from trainyard.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from trainyard.kube.resources import CONFIG_MAPS

Object = dict[str, Any]


def owner_of(body: Object) -> str:
    """The name of the job whose script an object brings; "" of everything else."""
    annotations = body["metadata"].get("annotations") or {}
    is_config = body.get("kind") == CONFIG_MAPS.kind
    return str(annotations.get(labels.SCRIPT_OF, "")) if is_config else ""


async def create(client: Client, body: Object) -> None:
    """Put the ConfigMap there, in the place of one of an earlier job of that name.

    That one may be waiting to be collected, and must not be taken from under the new job.
    """
    metadata = body["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    with suppress(AlreadyExists):
        await client.create(CONFIG_MAPS, body)
        return
    with suppress(NotFound, Conflict):
        present = await client.get(CONFIG_MAPS, name, namespace)
        await client.delete(CONFIG_MAPS, name, namespace, uid=present["metadata"]["uid"])
    await client.create(CONFIG_MAPS, body)


async def give(client: Client, body: Object, job: Job) -> None:
    """Let the ConfigMap go when the job goes; where one may not say so, it stays."""
    owner = {
        "apiVersion": job.kind.api_version,
        "kind": job.kind.kind,
        "name": job.name,
        "uid": job.uid,
    }
    metadata, patch = body["metadata"], {"metadata": {"ownerReferences": [owner]}}
    with suppress(Forbidden, NotFound):
        await client.patch(CONFIG_MAPS, metadata["name"], patch, metadata["namespace"])
