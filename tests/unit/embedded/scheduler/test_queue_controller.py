"""Statuses of Queues and PodGroups, and the end of pods that outlive their Queue's patience."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from trainyard.composition.kinds_extension import EXTENSION, RESOURCES
from trainyard.embedded.controllers.queue_controller import QueueController
from trainyard.embedded.registry import Registry
from trainyard.kinds.shared import labels

QUEUES = "queues.scheduler.tensorstack.dev"
GROUPS = "podgroups.scheduler.tensorstack.dev"
Object = dict[str, Any]


@asynccontextmanager
async def keeping() -> AsyncIterator[Registry]:
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    task = asyncio.create_task(QueueController(registry, EXTENSION).run())
    try:
        yield registry
    finally:
        task.cancel()
        await registry.close()


async def _until(registry: Registry, resource: str, holds: Callable[[], bool]) -> None:
    changes = registry.subscribe(resource)
    async with asyncio.timeout(120):
        while not holds():
            await changes.batch()


async def _pod(registry: Registry, name: str, queue: str, node: str = "") -> None:
    marks = {labels.QUEUE: queue, labels.GROUP_NAME: "gang"}
    container = {"name": "main", "resources": {"requests": {"cpu": "2"}}}
    spec: Object = {"containers": [container]}
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": "default", "labels": marks}
    await registry.create("pods", {"metadata": metadata, "spec": spec})


async def test_a_queue_counts_its_pods_groups_and_what_they_hold() -> None:
    async with keeping() as registry:
        await registry.create(QUEUES, {"metadata": {"name": "q"}, "spec": {}})
        group = {"metadata": {"name": "gang", "namespace": "default"}}
        await registry.create(GROUPS, {**group, "spec": {"minMember": 2, "queue": "q"}})
        await _pod(registry, "here", "q", node="n")
        await _pod(registry, "waits", "q")

        def status() -> Object:
            return dict(registry.get(QUEUES, "", "q").get("status") or {})

        await _until(registry, QUEUES, lambda: (status().get("pods") or {}).get("pending") == 2)
        assert status()["allocated"] == {"cpu": "2"}
        assert status()["podGroups"] == {"total": 1}


async def test_a_group_says_whether_it_is_complete_and_scheduled() -> None:
    async with keeping() as registry:
        group = {"metadata": {"name": "gang", "namespace": "default"}}
        await registry.create(GROUPS, {**group, "spec": {"minMember": 2}})
        await _pod(registry, "here", "q", node="n")

        def conditions() -> dict[str, str]:
            status = registry.get(GROUPS, "default", "gang").get("status") or {}
            return {each["type"]: each["status"] for each in status.get("conditions") or ()}

        lacking = {"SufficientGroupMember": "False", "GroupScheduled": "False"}
        await _until(registry, GROUPS, lambda: conditions() == lacking)
        await _pod(registry, "also", "q", node="n")
        whole = {"SufficientGroupMember": "True", "GroupScheduled": "True"}
        await _until(registry, GROUPS, lambda: conditions() == whole)


async def test_a_pod_older_than_its_queue_allows_is_deleted_and_told_why() -> None:
    async with keeping() as registry:
        spec = {"maxDuration": "1s"}
        await registry.create(QUEUES, {"metadata": {"name": "short"}, "spec": spec})
        await _pod(registry, "old", "short", node="n")

        def is_deleting() -> bool:
            return "deletionTimestamp" in registry.get("pods", "default", "old")["metadata"]

        await _until(registry, "pods", is_deleting)
        conditions = registry.get("pods", "default", "old")["status"]["conditions"]
        assert [c["reason"] for c in conditions if c["type"] == "DisruptionTarget"] == [
            "QueueMaxDuration"
        ]
