"""Detects the gang scheduler of a cluster by the resources that it serves (decision 174)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import replace

import orjson

from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kinds.shared.scheduling.gang_scheduling import (
    NATIVE_POD_GROUPS,
    PLUGINS_POD_GROUPS,
    VOLCANO_POD_GROUPS,
)
from trainyard.kinds.shared.scheduling.kueue_workload import WORKLOADS
from trainyard.kube.client import Client
from trainyard.kube.errors import ApiError
from trainyard.kube.resources import Resource
from trainyard.kube.transport import Request

log = logging.getLogger(__name__)

_MARKER_RESOURCES = (
    (GangBackend.KUEUE, (WORKLOADS,)),
    (GangBackend.VOLCANO, (VOLCANO_POD_GROUPS,)),
    (GangBackend.SCHEDULER_PLUGINS, (PLUGINS_POD_GROUPS,)),
    (GangBackend.KUBERNETES, NATIVE_POD_GROUPS),
)
"""The first that is served counts: a scheduler that grants quota must not be bypassed."""


async def detect_gang_scheduler(client: Client, settings: Settings) -> Settings:
    """The settings with the gang scheduler to use, and the version of its PodGroups.

    Raises `KubeError` when the server does not answer.
    """
    wanted = settings.gang_backend
    if wanted not in (GangBackend.AUTO, GangBackend.KUBERNETES):
        return settings
    async for backend, resource in served_gang_schedulers(client):
        if wanted in (GangBackend.AUTO, backend):
            name = f"{resource.plural} of {resource.api_version}"
            log.info("jobs are handed to %s: %s are served", backend, name)
            is_native = backend is GangBackend.KUBERNETES
            version = resource.version if is_native else ""
            return replace(settings, gang_backend=backend, pod_groups_version=version)
    if wanted is GangBackend.KUBERNETES:
        log.warning("podgroups of %s are not served here", NATIVE_POD_GROUPS[0].group)
        return settings
    log.info("no gang scheduler that is known is served here")
    return replace(settings, gang_backend=GangBackend.NONE)


async def served_gang_schedulers(client: Client) -> AsyncIterator[tuple[GangBackend, Resource]]:
    """The gang schedulers of the cluster in order of preference, each with the resource by which it
    was recognized, in the newest version that we know."""
    for backend, resources in _MARKER_RESOURCES:
        for resource in resources:
            if await _serves(client, resource):
                yield backend, resource
                break


async def _serves(client: Client, resource: Resource) -> bool:
    request = Request("GET", resource.root)
    try:
        answer = await client.raw(request, f"look for {resource.full_name}")
    except ApiError as error:
        if error.code in (403, 404):
            return False
        raise
    found = orjson.loads(answer.body).get("resources") or ()
    return any(each.get("name") == resource.plural for each in found)
