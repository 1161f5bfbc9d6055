"""Pods that a NoExecute taint ends, at once, after their time or never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.controllers.taint_eviction import TaintEviction
from trainyard.embedded.registry import Registry

Object = dict[str, Any]
NODE = "here"
WAIT_SECONDS = 120.0


@asynccontextmanager
async def evicting() -> AsyncIterator[Registry]:
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    await registry.create("nodes", {"metadata": {"name": NODE}, "spec": {}})
    task = asyncio.create_task(TaintEviction(registry).run())
    try:
        yield registry
    finally:
        task.cancel()
        await registry.close()


async def pod(registry: Registry, name: str, *tolerations: Object, **spec: Any) -> None:
    container = {"name": "main", "image": "i"}
    wanted = {"nodeName": NODE, "containers": [container], "tolerations": [*tolerations], **spec}
    metadata = {"name": name, "namespace": "default"}
    await registry.create("pods", {"metadata": metadata, "spec": wanted})


async def taint(registry: Registry, *taints: Object) -> None:
    def change(node: Object) -> Object:
        return {**node, "spec": {"taints": [*taints]}}

    await registry.update("nodes", "", NODE, change)


async def until(registry: Registry, holds: Callable[[], bool]) -> None:
    changes = registry.subscribe("pods")
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():
            await changes.batch()
    registry.unsubscribe(changes)


def leaving(registry: Registry) -> set[str]:
    pods = registry.list("pods")
    return {p["metadata"]["name"] for p in pods if "deletionTimestamp" in p["metadata"]}


NO_EXECUTE = {"key": "team", "value": "b", "effect": "NoExecute"}


async def test_pods_that_do_not_tolerate_it_are_deleted_with_the_reason() -> None:
    async with evicting() as registry:
        await pod(registry, "goes")
        await pod(registry, "stays", {"key": "team", "operator": "Exists"})
        await pod(registry, "elsewhere", nodeName="there")
        await taint(registry, NO_EXECUTE)
        await until(registry, lambda: leaving(registry) == {"goes"})
        status = registry.get("pods", "default", "goes")["status"]
        (target,) = (c for c in status["conditions"] if c["type"] == "DisruptionTarget")
        assert (target["status"], target["reason"]) == ("True", "DeletionByTaintManager")
        await pod(registry, "late")  # the taint was there before
        await until(registry, lambda: leaving(registry) == {"goes", "late"})


async def test_a_pod_may_put_up_with_it_for_a_time() -> None:
    async with evicting() as registry:
        await pod(
            registry, "hour", {"key": "team", "operator": "Exists", "tolerationSeconds": 3600}
        )
        await pod(registry, "soon", {"key": "team", "operator": "Exists", "tolerationSeconds": 1})
        await taint(registry, NO_EXECUTE)
        await until(registry, lambda: leaving(registry) == {"soon"})


async def test_a_taint_of_another_effect_ends_nothing() -> None:
    async with evicting() as registry:
        await pod(registry, "stays", {"key": "k", "operator": "Exists"})
        await taint(registry, {**NO_EXECUTE, "effect": "NoSchedule"})
        await pod(registry, "goes")
        await taint(registry, {**NO_EXECUTE, "effect": "NoSchedule"}, {**NO_EXECUTE, "key": "k"})
        await until(registry, lambda: bool(leaving(registry)))
        assert leaving(registry) == {"goes"}


async def test_what_has_ended_is_left() -> None:
    async with evicting() as registry:
        await pod(registry, "ended")
        await pod(registry, "runs")

        def end(found: Object) -> Object:
            return {**found, "status": {**found["status"], "phase": "Succeeded"}}

        await registry.update("pods", "default", "ended", end, subresource="status")
        await taint(registry, NO_EXECUTE)
        await until(registry, lambda: leaving(registry) == {"runs"})
