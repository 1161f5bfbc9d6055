"""Garbage collection, namespaces and old events, on a live registry."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.controllers.housekeeping import (
    EVENT_SECONDS,
    MAX_EVENTS,
    MAX_SURPLUS_EVENTS,
    Housekeeping,
)
from trainyard.embedded.registry import Registry
from trainyard.kube.errors import NotFound

JOBS = "genericjobs.batch.tensorstack.dev"


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    made = Registry(resources=RESOURCES)
    await made.ensure_system_objects()
    running = asyncio.create_task(Housekeeping(made).run())
    yield made
    await made.close()
    async with asyncio.timeout(120):
        await running


async def eventually(registry: Registry, condition: Callable[[], bool]) -> None:
    """Wait for a change after which the condition holds."""
    changes = registry.subscribe("namespaces", "configmaps", "secrets", "serviceaccounts", JOBS)
    async with asyncio.timeout(120):
        while not condition():
            await anext(changes)
    registry.unsubscribe(changes)


def reference(owner: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        **extra,
    }


def owned(name: str, *owners: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "ownerReferences": list(owners), **metadata}}


async def settled(registry: Registry) -> None:
    """Everything that was written so far has been handled: a canary of a gone owner is deleted."""
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "ghost"}
    await registry.create("secrets", owned("canary", ghost))
    await eventually(registry, lambda: not registry.list("secrets"))


async def test_dependents_go_with_their_owner(registry: Registry) -> None:
    job = await registry.create(JOBS, {"metadata": {"name": "j"}, "spec": {}})
    child = await registry.create("configmaps", owned("c", reference(job)))
    await registry.create("secrets", owned("grandchild", reference(child)))
    await registry.delete(JOBS, "default", "j")
    await eventually(
        registry, lambda: not registry.list("configmaps") and not registry.list("secrets")
    )


async def test_a_dependent_of_an_owner_with_another_uid_goes(registry: Registry) -> None:
    job = await registry.create(JOBS, {"metadata": {"name": "j"}, "spec": {}})
    await registry.create("configmaps", owned("c", {**reference(job), "uid": "former"}))
    await eventually(registry, lambda: not registry.list("configmaps"))


async def test_a_dependent_with_one_owner_left_stays_and_loses_the_reference(
    registry: Registry,
) -> None:
    first = await registry.create(JOBS, {"metadata": {"name": "a"}, "spec": {}})
    second = await registry.create(JOBS, {"metadata": {"name": "b"}, "spec": {}})
    await registry.create("configmaps", owned("c", reference(first), reference(second)))
    await registry.delete(JOBS, "default", "a")

    def owners() -> list[str]:
        metadata = registry.get("configmaps", "default", "c")["metadata"]
        return [each["name"] for each in metadata["ownerReferences"]]

    await eventually(registry, lambda: owners() == ["b"])


async def test_an_owner_of_an_unserved_kind_is_left_to_others(registry: Registry) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}
    await registry.create("configmaps", owned("c", owner))
    await settled(registry)
    assert registry.get("configmaps", "default", "c")


async def test_foreground_deletion_keeps_the_owner_until_blocking_dependents_are_gone(
    registry: Registry,
) -> None:
    job = await registry.create(JOBS, {"metadata": {"name": "j"}, "spec": {}})
    blocking = reference(job, blockOwnerDeletion=True)
    await registry.create("configmaps", owned("c", blocking, finalizers=["test/hold"]))
    await registry.delete(JOBS, "default", "j", Deletion(propagation="Foreground"))

    def child() -> dict[str, Any]:
        return registry.get("configmaps", "default", "c")["metadata"]

    await eventually(registry, lambda: "deletionTimestamp" in child())
    await settled(registry)
    assert registry.get(JOBS, "default", "j")["metadata"]["finalizers"] == ["foregroundDeletion"]

    def release(copy: dict[str, Any]) -> dict[str, Any]:
        copy["metadata"]["finalizers"] = []
        return copy

    await registry.update("configmaps", "default", "c", release)
    await eventually(registry, lambda: not registry.list(JOBS))


async def test_orphaned_dependents_stay_without_the_reference(registry: Registry) -> None:
    job = await registry.create(JOBS, {"metadata": {"name": "j"}, "spec": {}})
    await registry.create("configmaps", owned("c", reference(job)))
    await registry.delete(JOBS, "default", "j", Deletion(propagation="Orphan"))
    await eventually(registry, lambda: not registry.list(JOBS))
    assert "ownerReferences" not in registry.get("configmaps", "default", "c")["metadata"]


async def test_a_deleted_namespace_is_emptied_first(registry: Registry) -> None:
    await registry.create("namespaces", {"metadata": {"name": "team"}})
    held = {"metadata": {"name": "held", "namespace": "team", "finalizers": ["test/hold"]}}
    await registry.create("configmaps", held)
    await registry.create("configmaps", {"metadata": {"name": "free", "namespace": "team"}})
    await registry.delete("namespaces", "", "team")
    await eventually(registry, lambda: len(registry.list("configmaps", "team")) == 1)
    assert registry.get("namespaces", "", "team")["status"]["phase"] == "Terminating"
    await registry.update(
        "configmaps",
        "team",
        "held",
        lambda copy: {**copy, "metadata": {**copy["metadata"], "finalizers": []}},
    )
    await eventually(registry, lambda: len(registry.list("namespaces")) == 4)
    with pytest.raises(NotFound):
        registry.get("namespaces", "", "team")


async def test_a_new_namespace_gets_its_service_account(registry: Registry) -> None:
    await registry.create("namespaces", {"metadata": {"name": "team"}})
    await eventually(registry, lambda: bool(registry.list("serviceaccounts", "team")))


async def test_old_events_are_forgotten(registry: Registry) -> None:
    for name, stamp in (("old", "2020-01-01T00:00:00Z"), ("new", "2999-01-01T00:00:00Z")):
        await registry.create("events", {"metadata": {"name": name}, "lastTimestamp": stamp})
    await Housekeeping(registry).delete_old_events(time.time() - EVENT_SECONDS)
    assert [each["metadata"]["name"] for each in registry.list("events")] == ["new"]


async def test_a_burst_of_events_is_cut_while_it_lasts(registry: Registry) -> None:
    most = 0
    for number in range(MAX_EVENTS + 4 * MAX_SURPLUS_EVENTS):
        await registry.create("events", {"metadata": {"name": f"event-{number}"}})
        if number > MAX_EVENTS and number % 50 == 0:
            most = max(most, len(registry.entries("events")))
    assert most < MAX_EVENTS + 2 * MAX_SURPLUS_EVENTS


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library does not keep memory"
)
async def test_the_memory_of_what_is_gone_is_given_back() -> None:
    """Holes between what stays: the C library keeps them unless it is asked."""
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    housekeeping = Housekeeping(registry)
    for number in range(5_000):
        data = {"text": "x" * 8_000}
        await registry.create("configmaps", {"metadata": {"name": f"c-{number}"}, "data": data})
    for number in range(5_000):
        if number % 50:
            await registry.delete("configmaps", "default", f"c-{number}")
    before = resident_mib()
    housekeeping.trim_memory()
    assert resident_mib() < before - 10
    await registry.close()


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


async def test_an_owner_in_another_namespace_is_none_and_that_is_told(registry: Registry) -> None:
    await registry.create("namespaces", {"metadata": {"name": "team"}})
    job = await registry.create(JOBS, {"metadata": {"name": "j"}, "spec": {}})
    await registry.create("configmaps", owned("forged", reference(job), namespace="team"))
    await eventually(registry, lambda: not registry.list("configmaps"))
    [event] = registry.list("events", "team")
    assert event["reason"] == "OwnerRefInvalidNamespace"
    assert 'does not exist in namespace "team"' in event["message"]
    assert event["involvedObject"]["name"] == "forged"


async def test_what_is_elsewhere_does_not_hold_up_a_foreground_deletion(
    registry: Registry,
) -> None:
    """It cannot be deleted itself, for its finalizer."""
    await registry.create("namespaces", {"metadata": {"name": "team"}})
    job = await registry.create(JOBS, {"metadata": {"name": "j"}, "spec": {}})
    forged = reference(job, blockOwnerDeletion=True)
    held = owned("forged", forged, namespace="team", finalizers=["test/hold"])
    await registry.create("configmaps", held)
    await registry.delete(JOBS, "default", "j", Deletion(propagation="Foreground"))
    await eventually(registry, lambda: not registry.list(JOBS))


async def test_orphaning_leaves_alone_what_is_elsewhere(registry: Registry) -> None:
    await registry.create("namespaces", {"metadata": {"name": "team"}})
    job = await registry.create(JOBS, {"metadata": {"name": "j"}, "spec": {}})
    held = owned("forged", reference(job), namespace="team", finalizers=["test/hold"])
    await registry.create("configmaps", held)
    await registry.delete(JOBS, "default", "j", Deletion(propagation="Orphan"))
    await eventually(registry, lambda: not registry.list(JOBS))
    await settled(registry)
    found = registry.get("configmaps", "team", "forged")["metadata"]
    assert "deletionTimestamp" in found
    assert found["ownerReferences"]


async def test_what_is_in_no_namespace_is_not_deleted_for_an_owner_in_one(
    registry: Registry,
) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "gone"}
    await registry.create("namespaces", owned("team", owner))
    await settled(registry)
    assert "deletionTimestamp" not in registry.get("namespaces", "", "team")["metadata"]
