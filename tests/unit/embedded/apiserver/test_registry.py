"""The engine of the embedded API server, without HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.registry import Registry
from trainyard.embedded.storage.journal import Subscription
from trainyard.kube.errors import AlreadyExists, Conflict, Forbidden, Gone, Invalid, NotFound

JOBS = "pytorchtrainingjobs.batch.tensorstack.dev"


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "data": {"a": "1"}}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "x"}], **spec},
    }


async def next_types(subscription: Subscription, count: int) -> list[str]:
    async with asyncio.timeout(120):
        return [(await anext(subscription)).type for _ in range(count)]


async def test_create_completes_metadata(registry: Registry) -> None:
    made = await registry.create(JOBS, {"metadata": {"name": "j"}, "spec": {}, "status": {"x": 1}})
    metadata = made["metadata"]
    assert made["apiVersion"] == "batch.tensorstack.dev/v1beta1"
    assert made["kind"] == "PyTorchTrainingJob"
    assert metadata["namespace"] == "default"
    assert metadata["generation"] == 1
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) == registry.revision
    assert "status" not in made
    assert registry.get(JOBS, "default", "j") == made


async def test_create_refuses_a_taken_name_even_before_the_first_is_committed(
    registry: Registry,
) -> None:
    results = await asyncio.gather(
        registry.create("configmaps", config_map("c")),
        registry.create("configmaps", config_map("c")),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [dict, AlreadyExists]


async def test_generate_name_makes_distinct_names(registry: Registry) -> None:
    made = [
        await registry.create("configmaps", {"metadata": {"generateName": "c-"}}) for _ in range(20)
    ]
    names = {each["metadata"]["name"] for each in made}
    assert len(names) == 20
    assert all(name.startswith("c-") and len(name) == 7 for name in names)


async def test_create_needs_an_existing_namespace(registry: Registry) -> None:
    with pytest.raises(NotFound, match='namespaces "nope" not found'):
        await registry.create("configmaps", config_map("c", namespace="nope"))


async def test_update_is_read_modify_write_without_lost_updates(registry: Registry) -> None:
    await registry.create("configmaps", {"metadata": {"name": "n"}, "data": {"n": "0"}})

    def add(copy: dict[str, Any]) -> dict[str, Any]:
        copy["data"]["n"] = str(int(copy["data"]["n"]) + 1)
        return copy

    await asyncio.gather(*(registry.update("configmaps", "default", "n", add) for _ in range(50)))
    assert registry.get("configmaps", "default", "n")["data"]["n"] == "50"


async def test_update_with_a_stale_resource_version_conflicts(registry: Registry) -> None:
    old = await registry.create("configmaps", config_map("c"))
    await registry.update("configmaps", "default", "c", lambda c: {**c, "data": {"a": "2"}})
    with pytest.raises(Conflict, match="the object has been modified"):
        await registry.update("configmaps", "default", "c", lambda _: {**old, "data": {}})


async def test_update_without_a_difference_writes_nothing(registry: Registry) -> None:
    made = await registry.create("configmaps", config_map("c"))
    again = await registry.update("configmaps", "default", "c", lambda copy: copy)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_status_and_spec_are_written_apart_and_only_spec_counts_generations(
    registry: Registry,
) -> None:
    await registry.create(JOBS, {"metadata": {"name": "j"}, "spec": {"a": 1}})

    def both(copy: dict[str, Any]) -> dict[str, Any]:
        return {**copy, "spec": {"a": 2}, "status": {"phase": "Running"}}

    first = await registry.update(JOBS, "default", "j", both, subresource="status")
    assert (first["spec"], first["status"]) == ({"a": 1}, {"phase": "Running"})
    assert first["metadata"]["generation"] == 1
    second = await registry.update(JOBS, "default", "j", lambda c: {**both(c), "status": {}})
    assert (second["spec"], second["status"]) == ({"a": 2}, {"phase": "Running"})
    assert second["metadata"]["generation"] == 2


async def test_immutable_metadata_survives_any_update(registry: Registry) -> None:
    made = await registry.create("configmaps", config_map("c"))
    again = await registry.update(
        "configmaps",
        "default",
        "c",
        lambda copy: {**copy, "metadata": {"name": "c", "labels": {"x": "y"}}},
    )
    for field in ("uid", "creationTimestamp", "namespace"):
        assert again["metadata"][field] == made["metadata"][field]


async def test_finalizers_hold_a_deleted_object_until_the_last_is_removed(
    registry: Registry,
) -> None:
    await registry.create("configmaps", config_map("c", finalizers=["a/b"]))
    marked = await registry.delete("configmaps", "default", "c")
    assert marked["metadata"]["deletionTimestamp"]

    def release(copy: dict[str, Any]) -> dict[str, Any]:
        copy["metadata"]["finalizers"] = []
        return copy

    await registry.update("configmaps", "default", "c", release)
    with pytest.raises(NotFound):
        registry.get("configmaps", "default", "c")


async def test_no_finalizer_can_be_added_while_deleting(registry: Registry) -> None:
    await registry.create("configmaps", config_map("c", finalizers=["a/b"]))
    await registry.delete("configmaps", "default", "c")

    def add(copy: dict[str, Any]) -> dict[str, Any]:
        copy["metadata"]["finalizers"].append("c/d")
        return copy

    with pytest.raises(Invalid, match="none can be added while it is being deleted"):
        await registry.update("configmaps", "default", "c", add)


async def test_an_unbound_pod_goes_at_once(registry: Registry) -> None:
    await registry.create("pods", pod("p"))
    await registry.delete("pods", "default", "p")
    assert registry.list("pods") == []


async def test_a_bound_pod_is_marked_and_goes_with_grace_zero(registry: Registry) -> None:
    await registry.create("pods", pod("p", nodeName="here", terminationGracePeriodSeconds=7))
    marked = await registry.delete("pods", "default", "p")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 7
    shorter = await registry.delete("pods", "default", "p", Deletion(grace_seconds=3))
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 3
    longer = await registry.delete("pods", "default", "p", Deletion(grace_seconds=60))
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 3
    await registry.delete("pods", "default", "p", Deletion(grace_seconds=0))
    assert registry.list("pods") == []


async def test_a_bound_pod_that_has_ended_goes_at_once(registry: Registry) -> None:
    await registry.create("pods", pod("p", nodeName="here"))
    await registry.update(
        "pods",
        "default",
        "p",
        lambda copy: {**copy, "status": {"phase": "Succeeded"}},
        subresource="status",
    )
    await registry.delete("pods", "default", "p")
    assert registry.list("pods") == []


async def test_delete_refuses_another_uid(registry: Registry) -> None:
    await registry.create("configmaps", config_map("c"))
    with pytest.raises(Conflict, match="UID in precondition"):
        await registry.delete("configmaps", "default", "c", Deletion(uid="other"))


async def test_a_pod_is_bound_once(registry: Registry) -> None:
    await registry.create("pods", pod("p"))

    def bind(node: str) -> dict[str, Any]:
        def change(copy: dict[str, Any]) -> dict[str, Any]:
            copy["spec"]["nodeName"] = node
            return copy

        return {"change": change}

    await registry.update("pods", "default", "p", **bind("here"))
    with pytest.raises(Invalid, match=r"spec\.nodeName"):
        await registry.update("pods", "default", "p", **bind("there"))


async def test_services_get_distinct_addresses_and_keep_them(registry: Registry) -> None:
    made = await asyncio.gather(
        *(
            registry.create("services", {"metadata": {"name": f"s{i}"}, "spec": {}})
            for i in range(5)
        )
    )
    addresses = {each["spec"]["clusterIP"] for each in made}
    assert len(addresses) == 5
    headless = await registry.create(
        "services", {"metadata": {"name": "h"}, "spec": {"clusterIP": "None"}}
    )
    assert headless["spec"]["clusterIP"] == "None"
    kept = await registry.update(
        "services", "default", "s0", lambda copy: {**copy, "spec": {"selector": {"a": "b"}}}
    )
    assert kept["spec"]["clusterIP"] == made[0]["spec"]["clusterIP"]


async def test_subscription_starts_with_the_present_and_goes_on_without_loss(
    registry: Registry,
) -> None:
    await registry.create("configmaps", config_map("before"))
    subscription = registry.subscribe("configmaps", "secrets")
    await registry.create("secrets", {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
    await registry.update("configmaps", "default", "before", lambda c: {**c, "data": {}})
    await registry.delete("configmaps", "default", "before")
    assert await next_types(subscription, 4) == ["ADDED", "ADDED", "MODIFIED", "DELETED"]
    registry.unsubscribe(subscription)
    assert [event async for event in subscription] == []


async def test_watch_resumes_from_a_version_and_says_gone_when_that_is_too_old() -> None:
    registry = Registry(resources=RESOURCES, journal_bytes=2_000)
    await registry.ensure_system_objects()
    first = await registry.create("configmaps", config_map("c0"))
    since = int(first["metadata"]["resourceVersion"])
    await registry.create("configmaps", config_map("c1"))
    subscription = registry.watch("configmaps", since)
    assert [event.object["metadata"]["name"] for event in subscription.pending()] == ["c1"]
    for number in range(2, 30):
        await registry.create("configmaps", config_map(f"c{number}"))
    with pytest.raises(Gone, match="too old resource version"):
        registry.watch("configmaps", since)
    await registry.close()


async def test_system_namespaces_stay(registry: Registry) -> None:
    with pytest.raises(Forbidden, match="may not be deleted"):
        await registry.delete("namespaces", "", "default")


def node_port_service(name: str, **port: Any) -> dict[str, Any]:
    spec = {"type": "NodePort", "ports": [{"port": 80, **port}], "selector": {"a": "b"}}
    return {"metadata": {"name": name}, "spec": spec}


def node_ports(service: dict[str, Any]) -> list[int]:
    return [port["nodePort"] for port in service["spec"]["ports"]]


async def test_node_ports_are_given_once_and_kept(registry: Registry) -> None:
    """Also over an update by a manifest that does not name them."""
    made = [await registry.create("services", node_port_service(f"s{n}")) for n in range(20)]
    ports = [node_ports(service)[0] for service in made]
    assert len(set(ports)) == 20
    assert all(30000 <= port < 32768 for port in ports)
    again = {"type": "NodePort", "ports": [{"port": 80}, {"port": 81}], "selector": {}}
    updated = await registry.update("services", "default", "s0", lambda s: {**s, "spec": again})
    assert node_ports(updated)[0] == ports[0]
    assert node_ports(updated)[1] not in ports


async def test_a_named_node_port_is_taken_as_it_is(registry: Registry) -> None:
    made = await registry.create("services", node_port_service("s", nodePort=31000))
    assert node_ports(made) == [31000]


async def test_a_service_inside_the_cluster_has_no_node_port(registry: Registry) -> None:
    service = node_port_service("s")
    service["spec"]["type"] = "ClusterIP"
    made = await registry.create("services", service)
    assert "nodePort" not in made["spec"]["ports"][0]
    exposed = {**made["spec"], "type": "NodePort"}
    updated = await registry.update("services", "default", "s", lambda s: {**s, "spec": exposed})
    assert node_ports(updated)[0] >= 30000
