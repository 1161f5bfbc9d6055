"""The variables of Services, as Kubernetes' documentation and kubelet have them."""

from __future__ import annotations

from typing import Any

from trainyard.embedded.node.network.service_environment import ServiceEnvironment
from trainyard.embedded.storage.journal import Event


def service(name: str, address: str, *ports: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "spec": {"clusterIP": address, "ports": list(ports)}}


def observe(links: ServiceEnvironment, kind: str, each: dict[str, Any]) -> None:
    links.observe(Event(kind, "services", each, None, b"", 1))


def service_links(services: list[dict[str, Any]]) -> dict[str, str]:
    links = ServiceEnvironment()
    for each in services:
        observe(links, "ADDED", each)
    return links.variables_for("default")


def test_the_example_of_the_documentation() -> None:
    """https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables"""
    assert service_links([service("redis-primary", "10.0.0.11", {"port": 6379})]) == {
        "REDIS_PRIMARY_SERVICE_HOST": "10.0.0.11",
        "REDIS_PRIMARY_SERVICE_PORT": "6379",
        "REDIS_PRIMARY_PORT": "tcp://10.0.0.11:6379",
        "REDIS_PRIMARY_PORT_6379_TCP": "tcp://10.0.0.11:6379",
        "REDIS_PRIMARY_PORT_6379_TCP_PROTO": "tcp",
        "REDIS_PRIMARY_PORT_6379_TCP_PORT": "6379",
        "REDIS_PRIMARY_PORT_6379_TCP_ADDR": "10.0.0.11",
    }


def test_names_of_ports_and_other_protocols() -> None:
    ports = ({"name": "u-d-p", "port": 8083, "protocol": "UDP"}, {"name": "t", "port": 80})
    found = service_links([service("bar", "1.2.3.4", *ports)])
    assert found["BAR_SERVICE_PORT"] == found["BAR_SERVICE_PORT_U_D_P"] == "8083"
    assert found["BAR_SERVICE_PORT_T"] == "80"
    assert found["BAR_PORT"] == found["BAR_PORT_8083_UDP"] == "udp://1.2.3.4:8083"
    assert found["BAR_PORT_80_TCP"] == "tcp://1.2.3.4:80"


def test_only_services_with_an_address_have_any() -> None:
    spec = {"type": "ExternalName", "externalName": "a.b"}
    external = {"metadata": {"name": "e", "namespace": "default"}, "spec": spec}
    assert service_links([service("h", "None", {"port": 1}), external]) == {}


def test_they_are_those_of_services_that_are_there_now_in_the_order_of_names() -> None:
    links = ServiceEnvironment()
    for name, address in (("b", "10.0.0.2"), ("a", "10.0.0.1"), ("c", "10.0.0.3")):
        observe(links, "ADDED", service(name, address, {"port": 1}))
    other = service("o", "10.0.0.9", {"port": 1})
    other["metadata"]["namespace"] = "other"
    observe(links, "ADDED", other)
    assert [n for n in links.variables_for("default") if n.endswith("_HOST")] == [
        "A_SERVICE_HOST",
        "B_SERVICE_HOST",
        "C_SERVICE_HOST",
    ]
    observe(links, "MODIFIED", service("b", "None", {"port": 1}))
    observe(links, "MODIFIED", service("a", "10.0.0.1", {"port": 2}))
    observe(links, "DELETED", service("c", "10.0.0.3", {"port": 1}))
    observe(links, "DELETED", service("never", "None"))
    found = links.variables_for("default")
    assert [n for n in found if n.endswith("_HOST")] == ["A_SERVICE_HOST"]
    assert found["A_SERVICE_PORT"] == "2"
    assert next(iter(links.variables_for("other").values())) == "10.0.0.9"
    assert links.variables_for("nowhere") == {}
