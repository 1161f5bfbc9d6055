"""A cluster starts beside stored objects that nobody can read, names them, and lets them go."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import orjson
import pytest

from trainyard.composition.kinds_extension import EXTENSION, RESOURCES
from trainyard.embedded.controllers.housekeeping import Housekeeping
from trainyard.embedded.controllers.queue_controller import QueueController
from trainyard.embedded.corrupt_objects import CORRUPT_ANNOTATION
from trainyard.embedded.registry import Registry
from trainyard.embedded.scheduler.machine_capacity import Capacity
from trainyard.embedded.scheduler.scheduler import Scheduler, SchedulerSettings
from trainyard.embedded.storage.store import Store
from trainyard.kube.errors import AlreadyExists, Conflict, NotFound

JOBS = "genericjobs.batch.tensorstack.dev"
CONTAINERS = {"containers": [{"name": "main"}]}


def row(kind: str, name: str, namespace: str = "default", **fields: Any) -> bytes:
    metadata = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        **({"namespace": namespace} if namespace else {}),
        **fields.pop("metadata", {}),
    }
    return orjson.dumps({"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields})


POISON: list[tuple[str, str, str, Any, str]] = [
    ("pods", "default", "empty", row("Pod", "empty", spec={}), "spec.containers"),
    ("pods", "default", "no-spec", row("Pod", "no-spec"), "spec.containers"),
    ("pods", "default", "text", row("Pod", "text", spec="x"), "spec"),
    (
        "pods",
        "default",
        "owners",
        row("Pod", "owners", spec=CONTAINERS, metadata={"ownerReferences": "x"}),
        "metadata.ownerReferences",
    ),
    ("nodes", "", "n", row("Node", "n", "", status="x"), "status"),
    ("services", "default", "s", row("Service", "s", spec={"clusterIP": "x"}), "spec.clusterIP"),
    (
        "services",
        "default",
        "p",
        row("Service", "p", spec={"ports": [{"port": 99_999_999}]}),
        "spec.ports[0].port",
    ),
    ("configmaps", "default", "bytes", b"\xff\xfe{", "not JSON"),
    ("configmaps", "default", "cut", row("ConfigMap", "cut")[:40], "not JSON"),
    ("configmaps", "default", "number", 5, "not JSON"),
    ("configmaps", "default", "list", b"[]", "not a JSON object"),
    ("configmaps", "default", "nothing", b"{}", "metadata"),
    ("configmaps", "default", "other", row("ConfigMap", "another"), "metadata.name"),
    (
        "secrets",
        "default",
        "version",
        row("Secret", "version", metadata={"resourceVersion": "x"}),
        "resourceVersion",
    ),
    ("events", "default", "e", row("Event", "e"), "involvedObject"),
    (JOBS, "default", "j", row("GenericJob", "j", status={"tasks": "x"}), "status.tasks"),
    ("widgets.example.dev", "default", "w", b"{}", "nobody serves"),
    ("namespaces", "", "default", row("Namespace", "default", "", spec=[]), "spec"),
]


@pytest.fixture
def poisoned(tmp_path: Path) -> Path:
    """A database with all of them, and one pod that is as it should be."""
    path = tmp_path / "state.db"
    Store(path).close()
    with sqlite3.connect(path) as db:
        for entry in POISON:
            db.execute("INSERT INTO objects VALUES (?, ?, ?, ?)", entry[:4])
        good = row("Pod", "good", spec={**CONTAINERS, "volumes": None})
        db.execute("INSERT INTO objects VALUES ('pods', 'default', 'good', ?)", (good,))
        db.execute("UPDATE counter SET revision = 'many'")
    db.close()
    return path


async def test_every_one_is_named_with_its_problem_and_none_is_listed(poisoned: Path) -> None:
    registry = Registry(Store(poisoned), resources=RESOURCES)
    found = {
        (each.resource, each.namespace, each.name): each.problem
        for each in registry.corrupt_objects
    }
    assert found.keys() == {entry[:3] for entry in POISON}
    for *place, _, problem in POISON:
        assert problem in found[tuple(place)]
    for resource in ("nodes", "services", "configmaps", "secrets", "events", JOBS):
        assert registry.list(resource) == []
    (good,) = registry.list("pods")
    assert good["metadata"]["name"] == "good"
    assert "volumes" not in good["spec"]
    assert registry.revision == 7
    await registry.close()


async def test_the_loops_of_the_cluster_run_beside_them(poisoned: Path) -> None:
    registry = Registry(Store(poisoned), resources=RESOURCES)
    await registry.ensure_system_objects()
    settings = SchedulerSettings(
        "node", Capacity({"cpu": 1000, "memory": 1, "pods": 9}), extension=EXTENSION
    )
    services = (
        Scheduler(registry, settings),
        Housekeeping(registry),
        QueueController(registry, EXTENSION),
    )
    tasks = [asyncio.ensure_future(service.run()) for service in services]
    async with asyncio.timeout(120):
        async for event in registry.subscribe("pods"):
            if event.object["spec"].get("nodeName"):
                break
    assert not any(task.done() for task in tasks)
    assert registry.get("namespaces", "", "default")["status"]["phase"] == "Active"
    await registry.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_is_shown_by_name_cannot_be_changed_and_can_be_deleted(poisoned: Path) -> None:
    registry = Registry(Store(poisoned), resources=RESOURCES)
    await registry.ensure_system_objects()
    stub = registry.get("pods", "default", "owners")
    assert "ownerReferences" in stub["metadata"]["annotations"][CORRUPT_ANNOTATION]
    assert stub["metadata"]["uid"] == "uid-owners"
    with pytest.raises(Conflict, match="cannot be read"):
        await registry.update("pods", "default", "owners", lambda pod: pod)
    with pytest.raises(AlreadyExists):
        await registry.create("pods", {"metadata": {"name": "owners"}, "spec": CONTAINERS})
    for resource, namespace, name, *_ in POISON:
        if resource != "widgets.example.dev" and name != "default":
            await registry.delete(resource, namespace, name)
    with pytest.raises(NotFound):
        registry.get("pods", "default", "owners")
    await registry.create("pods", {"metadata": {"name": "owners"}, "spec": CONTAINERS})
    await registry.close()
    again = Registry(Store(poisoned), resources=RESOURCES)
    assert [each.name for each in again.corrupt_objects] == ["w"]
    assert [pod["metadata"]["name"] for pod in again.list("pods")] == ["good", "owners"]
    await again.close()


async def test_a_namespace_takes_its_damaged_objects_along(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    Store(path).close()
    with sqlite3.connect(path) as db:
        entry = ("configmaps", "team", "bad", b"{")
        db.execute("INSERT INTO objects VALUES (?, ?, ?, ?)", entry)
    db.close()
    registry = Registry(Store(path), resources=RESOURCES)
    await registry.ensure_system_objects()
    await registry.create("namespaces", {"metadata": {"name": "team"}})
    housekeeping = asyncio.ensure_future(Housekeeping(registry).run())
    await registry.delete("namespaces", "", "team")
    async with asyncio.timeout(120):
        async for event in registry.subscribe("namespaces"):
            if (event.type, event.object["metadata"]["name"]) == ("DELETED", "team"):
                break
    assert registry.corrupt_objects == ()
    await registry.close()
    housekeeping.cancel()
