"""Endpoints and EndpointSlices as kube-controller-manager writes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.controllers.endpoint_controller import EndpointController
from trainyard.embedded.controllers.housekeeping import Housekeeping
from trainyard.embedded.registry import Registry
from trainyard.kube.errors import NotFound

SLICES = "endpointslices.discovery.k8s.io"
PATIENCE = 120.0
Object = dict[str, Any]


@asynccontextmanager
async def keeping(registry: Registry | None = None) -> AsyncIterator[Registry]:
    registry = registry or Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    loops = (EndpointController(registry).run(), Housekeeping(registry).run())
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield registry
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(registry: Registry, holds: Callable[[], bool]) -> None:
    """Wait for what the controller is to write."""
    changes = registry.subscribe("endpoints", SLICES)
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await changes.batch()
    registry.unsubscribe(changes)


async def service(registry: Registry, name: str = "web", **spec: Any) -> Object:
    wanted = {"selector": {"app": "web"}, "ports": [{"port": 80}], **spec}
    metadata = {"name": name, "namespace": "default", "labels": {"mine": "yes"}}
    return await registry.create("services", {"metadata": metadata, "spec": wanted})


async def pod(registry: Registry, name: str, number: int, *, ready: bool = True) -> None:
    ports = [{"name": "http", "containerPort": 8000 + number % 2}]
    await registry.create(
        "pods",
        {
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
            "spec": {
                "nodeName": "n",
                "hostname": name,
                "subdomain": "headless",
                "containers": [{"name": "main", "ports": ports}],
            },
        },
    )
    await told(registry, name, number, ready=ready)


async def told(registry: Registry, name: str, number: int, *, ready: bool = True) -> None:
    status = {
        "phase": "Running",
        "podIP": f"10.244.{number // 250}.{number % 250 + 2}",
        "conditions": [{"type": "Ready", "status": str(ready)}],
    }
    await registry.update(
        "pods", "default", name, lambda obj: {**obj, "status": status}, subresource="status"
    )


def subsets(registry: Registry, name: str = "web") -> list[Object] | None:
    try:
        found: list[Object] = registry.get("endpoints", "default", name).get("subsets", [])
    except NotFound:
        return None
    return found


def addresses(registry: Registry, field: str = "addresses", name: str = "web") -> list[str]:
    return [a["ip"] for each in subsets(registry, name) or () for a in each.get(field, ())]


def slices(registry: Registry, name: str = "web") -> list[Object]:
    label = "kubernetes.io/service-name"
    return [each for each in registry.list(SLICES) if each["metadata"]["labels"][label] == name]


def conditions(registry: Registry, name: str = "web") -> dict[str, Object]:
    return {
        end["addresses"][0]: end["conditions"]
        for each in slices(registry, name)
        for end in each["endpoints"]
    }


async def test_both_are_written_with_who_is_ready_and_who_is_not() -> None:
    async with keeping() as registry:
        ports = [{"name": "a", "port": 80, "targetPort": 8080}, {"name": "b", "port": 81}]
        made = await service(registry, ports=ports)
        await pod(registry, "p0", 0)
        await pod(registry, "p1", 1, ready=False)
        await until(registry, lambda: addresses(registry, "notReadyAddresses") == ["10.244.0.3"])
        (subset,) = subsets(registry) or ()
        reference = {"kind": "Pod", "namespace": "default", "name": "p0"}
        reference["uid"] = registry.get("pods", "default", "p0")["metadata"]["uid"]
        about = {"nodeName": "n", "targetRef": reference}
        numbers = [
            {"name": "a", "port": 8080, "protocol": "TCP"},
            {"name": "b", "port": 81, "protocol": "TCP"},
        ]
        assert subset["addresses"] == [{"ip": "10.244.0.2", **about}]
        assert subset["ports"] == numbers
        await until(registry, lambda: len(conditions(registry)) == 2)
        (one,) = slices(registry)
        assert (one["addressType"], one["ports"]) == ("IPv4", numbers)
        known = {"ready": True, "serving": True, "terminating": False}
        assert one["endpoints"][0] == {"addresses": ["10.244.0.2"], "conditions": known, **about}
        assert one["endpoints"][1]["conditions"] == {**known, "ready": False, "serving": False}
        assert one["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
        assert one["metadata"]["labels"]["mine"] == "yes"
        await told(registry, "p1", 1)
        await until(registry, lambda: not addresses(registry, "notReadyAddresses"))
        await registry.delete("services", "default", "web")
        await until(registry, lambda: subsets(registry) is None and not slices(registry))


async def test_a_headless_service_has_its_pods_names_and_all_that_are_published() -> None:
    async with keeping() as registry:
        spec = {"clusterIP": "None", "ports": [], "publishNotReadyAddresses": True}
        await service(registry, "headless", **spec)
        await pod(registry, "p0", 0, ready=False)
        await until(registry, lambda: addresses(registry, name="headless") == ["10.244.0.2"])
        (subset,) = subsets(registry, "headless") or ()
        assert "ports" not in subset
        assert subset["addresses"][0]["hostname"] == "p0"
        found = registry.get("endpoints", "default", "headless")["metadata"]["labels"]
        assert found["service.kubernetes.io/headless"] == ""
        await until(registry, lambda: bool(conditions(registry, "headless")))
        known = conditions(registry, "headless")["10.244.0.2"]
        assert known == {"ready": True, "serving": False, "terminating": False}


async def test_a_pod_that_is_being_stopped_is_in_slices_only() -> None:
    async with keeping() as registry:
        await service(registry)
        await pod(registry, "p0", 0)
        await until(registry, lambda: addresses(registry) == ["10.244.0.2"])
        await registry.delete("pods", "default", "p0")
        await until(registry, lambda: subsets(registry) == [])
        stopping = {"ready": False, "serving": True, "terminating": True}
        await until(registry, lambda: conditions(registry) == {"10.244.0.2": stopping})


async def test_a_named_port_may_stand_for_several_numbers() -> None:
    async with keeping() as registry:
        await service(
            registry,
            ports=[{"name": "a", "port": 1, "targetPort": "http"}, {"name": "b", "port": 2}],
        )
        await pod(registry, "p0", 0)
        await pod(registry, "p1", 1)
        await until(registry, lambda: len(slices(registry)) == len(conditions(registry)) == 2)
        found = {
            port["port"]: [each["ip"] for each in subset["addresses"]]
            for subset in subsets(registry) or ()
            for port in subset["ports"]
        }
        one, two = "10.244.0.2", "10.244.0.3"
        assert found == {8000: [one], 8001: [two], 2: [one, two]}


async def test_slices_have_a_hundred_at_most_and_the_others_stay_as_they_are() -> None:
    async with keeping() as registry:
        for number in range(230):
            await pod(registry, f"p{number:03}", number)
        await service(registry)
        await until(registry, lambda: len(conditions(registry)) == 230)
        sizes = sorted(len(each["endpoints"]) for each in slices(registry))
        assert sizes == [30, 100, 100]
        versions = {
            s["metadata"]["name"]: s["metadata"]["resourceVersion"] for s in slices(registry)
        }
        await told(registry, "p000", 0, ready=False)
        await until(registry, lambda: not conditions(registry)["10.244.0.2"]["ready"])
        now = {s["metadata"]["name"]: s["metadata"]["resourceVersion"] for s in slices(registry)}
        assert len(now.items() - versions.items()) == 1


async def test_what_somebody_changes_or_deletes_is_written_again() -> None:
    async with keeping() as registry:
        await service(registry)
        await pod(registry, "p0", 0)
        await until(registry, lambda: bool(addresses(registry) and conditions(registry)))
        await registry.delete("endpoints", "default", "web")
        await until(registry, lambda: addresses(registry) == ["10.244.0.2"])
        (one,) = slices(registry)
        name, uid = one["metadata"]["name"], one["metadata"]["uid"]
        await registry.update(SLICES, "default", name, lambda obj: {**obj, "endpoints": []})
        await until(registry, lambda: bool(conditions(registry)))
        await registry.delete(SLICES, "default", name)
        await until(
            registry, lambda: [s["metadata"]["uid"] != uid for s in slices(registry)] == [True]
        )


async def test_endpoints_of_ones_own_stay_and_are_shown_as_slices() -> None:
    async with keeping() as registry:
        await service(registry, selector={})
        own = [{"addresses": [{"ip": "10.9.9.9"}], "ports": [{"port": 5432}]}]
        metadata = {"name": "web", "namespace": "default"}
        await registry.create("endpoints", {"metadata": metadata, "subsets": own})
        await until(registry, lambda: conditions(registry) == {"10.9.9.9": {"ready": True}})
        (one,) = slices(registry)
        assert one["ports"] == [{"name": "", "port": 5432, "protocol": "TCP"}]
        assert addresses(registry) == ["10.9.9.9"]
        await registry.delete("endpoints", "default", "web")
        await until(registry, lambda: not slices(registry))


async def test_a_second_controller_finds_what_the_first_has_written() -> None:
    async with keeping() as registry:
        await service(registry)
        await pod(registry, "p0", 0)
        await until(registry, lambda: bool(addresses(registry) and conditions(registry)))
        before = [each["metadata"]["resourceVersion"] for each in slices(registry)]
    async with keeping(registry):
        await pod(registry, "other", 3)
        await until(registry, lambda: len(addresses(registry)) == len(conditions(registry)) == 2)
        assert len(slices(registry)) == len(before) == 1
    await registry.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "x"])
def test_an_address_that_no_other_host_has_is_refused(address: str) -> None:
    registry = Registry(resources=RESOURCES)
    port = {"name": "", "port": 80, "protocol": "TCP"}
    metadata = {"name": "web", "namespace": "default"}
    subset = {"addresses": [{"ip": address}], "ports": [port]}
    verdict = registry.resources["endpoints"].validate(
        {"metadata": metadata, "subsets": [subset]}, None
    )
    assert [each.path for each in verdict.errors] == [("subsets", 0, "addresses", 0, "ip")]
    one = {"addressType": "IPv4", "endpoints": [{"addresses": [address]}], "ports": [port]}
    verdict = registry.resources[SLICES].validate({"metadata": metadata, **one}, None)
    assert [each.path for each in verdict.errors] == [("endpoints", 0, "addresses", 0)]


@pytest.mark.parametrize("kind", [" ", "IPv5", "500m"])
def test_a_slice_of_an_unknown_type_is_refused(kind: str) -> None:
    metadata = {"name": "web", "namespace": "default"}
    one = {"addressType": kind, "endpoints": [{"addresses": ["10.0.0.1"]}]}
    verdict = (
        Registry(resources=RESOURCES)
        .resources[SLICES]
        .validate({"metadata": metadata, **one}, None)
    )
    assert [each.path for each in verdict.errors] == [("addressType",)]
