"""Which connections are forwarded to which pods."""

from __future__ import annotations

from typing import Any

from trainyard.embedded.node.network.hosts_files import ServiceNames
from trainyard.embedded.node.network.service_forwarding import ServiceForwarding
from trainyard.embedded.storage.journal import Event
from trainyard.podruntime.protocol import Forward, Name

Object = dict[str, Any]


def service(**spec: Any) -> Object:
    base = {"clusterIP": "10.96.0.1", "selector": {"a": "b"}, "ports": [{"port": 80}]}
    return {"metadata": {"name": "s", "namespace": "ns"}, "spec": {**base, **spec}}


def pod(
    address: str = "10.0.0.2", *, ready: bool = True, leaving: bool = False, **labels: str
) -> Object:
    condition = {"type": "Ready", "status": str(ready)}
    metadata = {"name": address, "uid": address, "namespace": "ns", "labels": {"a": "b", **labels}}
    if leaving:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "metadata": metadata,
        "spec": {"containers": [{"ports": [{"name": "web", "containerPort": 8080}]}]},
        "status": {"podIP": address, "phase": "Running", "conditions": [condition]},
    }


def event(resource: str, obj: Object, kind: str = "ADDED") -> Event:
    return Event(kind, resource, obj, None, b"", 0)


def forwards(
    services: list[Object], pods: list[Object], *endpoints: Object, plain: bool = False
) -> list[Forward]:
    found = ServiceForwarding(plain=plain)
    for resource, objects in (("services", services), ("pods", pods), ("endpoints", endpoints)):
        for each in objects:
            found.observe(event(resource, each))
    found.take_changed_names()
    return found.forwards()


def test_a_port_goes_to_the_target_port_of_every_ready_pod() -> None:
    pods = [pod(), pod("10.0.0.3"), pod("10.0.0.4", ready=False)]
    ports = [{"port": 80, "targetPort": "web"}, {"port": 81, "targetPort": 9}, {"port": 82}]
    assert forwards([service(ports=ports)], pods) == [
        Forward("10.96.0.1", 80, (("10.0.0.2", 8080), ("10.0.0.3", 8080))),
        Forward("10.96.0.1", 81, (("10.0.0.2", 9), ("10.0.0.3", 9))),
        Forward("10.96.0.1", 82, (("10.0.0.2", 82), ("10.0.0.3", 82))),
    ]


def test_publish_not_ready_addresses_includes_them() -> None:
    found = forwards([service(publishNotReadyAddresses=True)], [pod(ready=False)])
    assert found == [Forward("10.96.0.1", 80, (("10.0.0.2", 80),))]


def test_what_is_being_stopped_is_reached_only_where_nothing_else_is_ready() -> None:
    leaving = pod("10.0.0.3", leaving=True)
    assert forwards([service()], [pod(), leaving])[0].endpoints == (("10.0.0.2", 80),)
    assert forwards([service()], [leaving])[0].endpoints == (("10.0.0.3", 80),)
    dead = pod("10.0.0.3", leaving=True, ready=False)
    assert forwards([service()], [dead])[0].endpoints == ()


def test_a_port_that_a_pod_does_not_name_does_not_lead_to_it() -> None:
    ports = [{"port": 80, "targetPort": "metrics"}]
    assert forwards([service(ports=ports)], [pod()]) == [Forward("10.96.0.1", 80, ())]


def test_headless_services_and_foreign_pods_are_left_out() -> None:
    assert forwards([service(clusterIP="None")], [pod()]) == []
    assert forwards([service()], [pod(a="c")]) == [Forward("10.96.0.1", 80, ())]


def test_datagrams_are_forwarded_as_connections_are() -> None:
    ports = [{"port": 53, "protocol": p} for p in ("TCP", "UDP", "SCTP")]
    ends = (("10.0.0.2", 53),)
    assert forwards([service(ports=ports)], [pod()]) == [
        Forward("10.96.0.1", 53, ends),
        Forward("10.96.0.1", 53, ends, "UDP"),
    ]
    moved = [{"port": 53, "targetPort": 5353, "protocol": "UDP"}]
    assert forwards([service(ports=moved)], [pod("127.1.2.3")], plain=True) == []


def test_without_namespaces_only_a_differing_port_is_forwarded() -> None:
    ports = [{"port": 80}, {"port": 81, "targetPort": 8081}]
    assert forwards([service(ports=ports)], [pod("127.1.2.3")], plain=True) == [
        Forward("127.1.2.3", 81, (("127.1.2.3", 8081),))
    ]


def test_a_service_without_a_selector_leads_to_its_own_endpoints() -> None:
    ports = [{"name": "sql", "port": 5432}, {"name": "web", "port": 80}]
    own = {
        "metadata": {"name": "s", "namespace": "ns"},
        "subsets": [
            {
                "addresses": [{"ip": "10.0.0.7"}, {"ip": "10.0.0.8"}],
                "notReadyAddresses": [{"ip": "10.0.0.9"}],
                "ports": [{"name": "sql", "port": 15432, "protocol": "TCP"}],
            }
        ],
    }
    found = forwards([service(selector={}, ports=ports)], [pod()], own)
    assert found == [
        Forward("10.96.0.1", 5432, (("10.0.0.7", 15432), ("10.0.0.8", 15432))),
        Forward("10.96.0.1", 80, ()),
    ]


def test_changes_are_followed() -> None:
    found = ServiceForwarding(plain=False)

    def wanted() -> list[Forward]:
        found.take_changed_names()
        return found.forwards()

    assert found.observe(event("services", service()))
    assert wanted() == [Forward("10.96.0.1", 80, ())]
    assert not found.observe(event("pods", pod(a="c")))
    assert found.observe(event("pods", pod(), "MODIFIED"))
    assert wanted()[0].endpoints == (("10.0.0.2", 80),)
    again = pod()
    again["metadata"]["annotations"] = {"told": "more"}
    assert not found.observe(event("pods", again, "MODIFIED"))
    assert found.observe(event("pods", pod(ready=False), "MODIFIED"))
    assert wanted()[0].endpoints == ()
    assert found.observe(event("pods", pod(), "MODIFIED"))
    ended = pod()
    ended["status"]["phase"] = "Failed"
    assert found.observe(event("pods", ended, "MODIFIED"))
    assert wanted()[0].endpoints == ()
    assert found.observe(event("services", service(), "DELETED"))
    assert wanted() == []


def names(*events: Event) -> dict[str, tuple[Name, ...]]:
    found = ServiceForwarding(plain=False)
    for each in events:
        found.observe(each)
    return {name: known.names for (_, name), known in found.take_changed_names().items()}


def called(name: str, **spec: Any) -> Event:
    made = service(**spec)
    made["metadata"]["name"] = name
    return event("services", made)


def test_what_names_stand_for() -> None:
    ready, named = pod(), pod("10.0.0.3")
    named["spec"] |= {"hostname": "first", "subdomain": "headless"}
    pods = [event("pods", each) for each in (ready, named, pod("10.0.0.4", ready=False))]
    found = names(
        *pods,
        called("plain"),
        called("headless", clusterIP="None"),
        called("all", clusterIP="None", publishNotReadyAddresses=True),
        called("alias", type="ExternalName", externalName="headless.ns.svc.cluster.local"),
        called("second", type="ExternalName", externalName="alias.ns.svc.cluster.local."),
        called("circle", type="ExternalName", externalName="circle.ns.svc.cluster.local"),
        called("outside", type="ExternalName", externalName="example.org"),
    )
    assert found["plain"] == (Name("10.96.0.1"),)
    assert found["headless"] == (Name("10.0.0.2"), Name("10.0.0.3", "first"))
    assert [each.address for each in found["all"]] == ["10.0.0.2", "10.0.0.3", "10.0.0.4"]
    assert found["alias"] == found["second"] == (Name("10.0.0.2"), Name("10.0.0.3"))
    assert found["circle"] == found["outside"] == ()


def test_what_the_resolver_is_told_of_ports_and_aliases() -> None:
    ports = [
        {"name": "http", "port": 80, "targetPort": "web"},
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"port": 99},
    ]
    own = {
        "metadata": {"name": "told", "namespace": "ns"},
        "subsets": [
            {"addresses": [{"ip": "10.0.0.7"}], "ports": [{"name": "http", "port": 8081}]},
        ],
    }
    found = ServiceForwarding(plain=False)
    for each in (
        event("pods", pod()),
        event("endpoints", own),
        called("plain", ports=ports),
        called("headless", clusterIP="None", ports=ports),
        called("told", clusterIP="None", selector={}, ports=ports),
        called("outside", type="ExternalName", externalName="example.org"),
    ):
        found.observe(each)
    known = {name: each for (_, name), each in found.take_changed_names().items()}
    names = ("_http._tcp", "_dns._udp")
    assert known["plain"] == ServiceNames((Name("10.96.0.1", "", (80, 53)),), ports=names)
    headless = ServiceNames((Name("10.0.0.2", "", (8080, 53)),), ports=names, is_headless=True)
    assert known["headless"] == headless
    assert known["told"] == headless._replace(names=(Name("10.0.0.7", "", (8081, 0)),))
    assert known["outside"] == ServiceNames((), alias="example.org")
