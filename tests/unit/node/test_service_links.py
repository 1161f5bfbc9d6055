"""The variables of Services, as Kubernetes' documentation and kubelet have them."""

from __future__ import annotations

from typing import Any

from trainyard.local.node.service_links import service_links


def service(name: str, address: str, *ports: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": list(ports)}}


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
    external = {"metadata": {"name": "e"}, "spec": {"type": "ExternalName", "externalName": "a.b"}}
    assert service_links([service("h", "None", {"port": 1}), external]) == {}
