"""Which connections are forwarded to which pods."""

from __future__ import annotations

from typing import Any

from trainyard.local.node.services import forwards


def service(**spec: Any) -> dict[str, Any]:
    base = {"clusterIP": "10.96.0.1", "selector": {"a": "b"}, "ports": [{"port": 80}]}
    return {"metadata": {"name": "s", "namespace": "ns"}, "spec": {**base, **spec}}


def pod(address: str = "10.0.0.2", *, ready: bool = True, **labels: str) -> dict[str, Any]:
    condition = {"type": "Ready", "status": str(ready)}
    return {
        "metadata": {"name": "p", "namespace": "ns", "labels": {"a": "b", **labels}},
        "spec": {"containers": [{"ports": [{"name": "web", "containerPort": 8080}]}]},
        "status": {"podIP": address, "phase": "Running", "conditions": [condition]},
    }


def test_a_port_goes_to_the_target_port_of_every_ready_pod() -> None:
    pods = [pod(), pod("10.0.0.3"), pod("10.0.0.4", ready=False)]
    ports = [{"port": 80, "targetPort": "web"}, {"port": 81, "targetPort": 9}, {"port": 82}]
    assert forwards([service(ports=ports)], pods, plain=False) == [
        ("10.96.0.1", 80, (("10.0.0.2", 8080), ("10.0.0.3", 8080))),
        ("10.96.0.1", 81, (("10.0.0.2", 9), ("10.0.0.3", 9))),
        ("10.96.0.1", 82, (("10.0.0.2", 82), ("10.0.0.3", 82))),
    ]


def test_publish_not_ready_addresses_includes_them() -> None:
    found = forwards([service(publishNotReadyAddresses=True)], [pod(ready=False)], plain=False)
    assert found == [("10.96.0.1", 80, (("10.0.0.2", 80),))]


def test_headless_services_udp_and_foreign_pods_are_left_out() -> None:
    udp = service(ports=[{"port": 53, "protocol": "UDP"}])
    assert forwards([service(clusterIP="None"), udp], [pod()], plain=False) == []
    assert forwards([service()], [pod(a="c")], plain=False) == [("10.96.0.1", 80, ())]


def test_without_namespaces_only_a_differing_port_is_forwarded() -> None:
    ports = [{"port": 80}, {"port": 81, "targetPort": 8081}]
    assert forwards([service(ports=ports)], [pod("127.1.2.3")], plain=True) == [
        ("127.1.2.3", 81, (("127.1.2.3", 8081),))
    ]
