"""What a pod asks for and does not get is told, each field by its name."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.composition.kinds_extension import EXTENSION
from trainyard.embedded.node.pods import unsupported_fields
from trainyard.embedded.node.pods.unsupported_fields import (
    unsupported_in_pod,
    unsupported_in_service,
)


def unsupported(
    spec: dict[str, Any],
    container: dict[str, Any],
    isolation: str = "root",
    *,
    has_resolver: bool = True,
) -> list[str]:
    pod = {"spec": {**spec, "containers": [{"name": "main", **container}]}}
    return unsupported_in_pod(
        pod,
        isolation,
        has_resolver=has_resolver,
        scheduler_names=EXTENSION.scheduler_names,
    )


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"hostNetwork": True}, "hostNetwork"),
        ({"hostPID": True}, "hostPID"),
        ({"hostIPC": True}, "hostIPC"),
        ({"shareProcessNamespace": True}, "shareProcessNamespace"),
        ({"runtimeClassName": "nvidia"}, "runtimeClassName"),
        ({"serviceAccountName": "trainer"}, "serviceAccountName"),
        ({"priorityClassName": "high"}, "priorityClassName"),
        ({"readinessGates": [{"conditionType": "x"}]}, "readinessGates"),
        ({"affinity": {"podAntiAffinity": {"x": []}}}, "affinity.podAntiAffinity"),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "topologySpreadConstraints"),
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims"),
        ({"securityContext": {"sysctls": [{"name": "a"}]}}, "securityContext.sysctls"),
        ({"securityContext": {"seccompProfile": {"type": "Localhost"}}}, "seccompProfile"),
        ({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]}, "volume v: emptyDir"),
    ],
)
def test_a_field_of_the_pod_is_told(spec: dict[str, Any], field: str) -> None:
    (text,) = unsupported(spec, {})
    assert text.startswith(field)


@pytest.mark.parametrize(
    ("container", "field"),
    [
        ({"volumeDevices": [{"name": "v"}]}, "volumeDevices"),
        ({"ports": [{"containerPort": 80, "hostPort": 80}]}, "hostPort"),
        ({"volumeMounts": [{"name": "v", "mountPropagation": "Bidirectional"}]}, "mountPropag"),
        ({"securityContext": {"seLinuxOptions": {"level": "s0"}}}, "seLinuxOptions"),
        ({"securityContext": {"runAsNonRoot": True, "runAsUser": 0}}, "runAsNonRoot"),
    ],
)
def test_a_field_of_a_container_is_told_with_its_name(
    container: dict[str, Any], field: str
) -> None:
    (text,) = unsupported({}, container)
    assert text.startswith(field)
    assert "of container main:" in text


@pytest.mark.parametrize(
    ("spec", "container"),
    [
        ({}, {}),
        ({"dnsConfig": {"searches": ["our.own"]}}, {}),
        ({"serviceAccountName": "default"}, {}),
        ({"volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]}, {}),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, {}),
        ({}, {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
        ({}, {"securityContext": {"runAsNonRoot": True, "runAsUser": 1000}}),
        ({}, {"securityContext": {"capabilities": {"drop": ["ALL"]}}}),
        ({}, {"livenessProbe": {"httpGet": {"port": 1}}}),
    ],
)
def test_what_is_honoured_is_not_told(spec: dict[str, Any], container: dict[str, Any]) -> None:
    assert unsupported(spec, container) == []


@pytest.mark.parametrize("isolation", ["rootless", "plain"])
def test_capabilities_and_privileges_need_root(isolation: str) -> None:
    capabilities = {"add": ["IPC_LOCK"], "drop": ["ALL"]}
    container = {"securityContext": {"privileged": True, "capabilities": capabilities}}
    fields = [text.partition(" of ")[0] for text in unsupported({}, container, isolation)]
    assert fields == ["capabilities.add", "capabilities.drop", "privileged"]
    assert unsupported({}, container) == []


def test_a_profile_of_system_calls_is_the_default_one() -> None:
    default, own = ({"seccompProfile": {"type": t}} for t in ("RuntimeDefault", "Localhost"))
    assert unsupported({}, {"securityContext": default}, "rootless") == []
    assert unsupported({"securityContext": default}, {}, "plain") == [
        "seccompProfile of container main: needs namespaces"
    ]
    (text,) = unsupported({}, {"securityContext": own})
    assert text.startswith("seccompProfile of container main: profiles of one's own are not read")


def test_one_sentence_for_equal_replicas_of_a_container() -> None:
    pod = {"spec": {"containers": [{"name": "main", "volumeDevices": [{}]}] * 2}}
    assert len(unsupported_in_pod(pod, "root", has_resolver=True)) == 1


def service(address: str, *protocols: str) -> dict[str, Any]:
    ports = [{"port": 80 + n, "protocol": name} for n, name in enumerate(protocols)]
    return {"metadata": {"name": "s"}, "spec": {"clusterIP": address, "ports": ports}}


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({"dnsPolicy": "None"}, 1),
        ({"dnsPolicy": "Default"}, 1),
        ({"dnsConfig": {"nameservers": ["8.8.8.8"]}}, 1),
        ({"dnsConfig": {"options": [{"name": "ndots"}]}}, 1),
        ({"dnsConfig": {"searches": ["job.ns.svc.cluster.local"]}}, 0),
        ({"dnsPolicy": "ClusterFirstWithHostNet"}, 0),
    ],
)
def test_how_names_are_looked_up_is_told_where_nobody_answers(
    spec: dict[str, Any], count: int
) -> None:
    text = "dnsPolicy, dnsConfig: pods reach no name server here"
    assert unsupported(spec, {}, has_resolver=False) == [text] * count
    assert unsupported(spec, {}) == []


def unsupported_of_service(
    service: dict[str, Any], *, has_resolver: bool = True, is_plain: bool = False
) -> str:
    return unsupported_in_service(service, has_resolver=has_resolver, is_plain=is_plain)


def test_a_port_that_is_neither_tcp_nor_udp_is_told() -> None:
    text = "Service s: port 82/SCTP is not forwarded on this machine, only TCP and UDP are"
    assert unsupported_of_service(service("10.96.0.1", "TCP", "UDP", "SCTP")) == text


def test_what_is_not_done_with_datagrams_is_told() -> None:
    one = service("10.96.0.1", "UDP")
    one["spec"]["ports"][0] |= {"nodePort": 30053, "targetPort": 53}
    expected = "nodePort 30053/UDP is not opened on this machine, only TCP is"
    assert unsupported_of_service(one) == f"Service s: {expected}"
    plain = "port 80/UDP: needs namespaces, as targetPort is another"
    assert unsupported_of_service(one, is_plain=True) == f"Service s: {plain}; {expected}"


@pytest.mark.parametrize("one", [service("10.96.0.1", "TCP", "UDP"), service("None", "SCTP")])
@pytest.mark.parametrize("is_plain", [False, True])
def test_tcp_udp_and_headless_services_are_served(one: dict[str, Any], is_plain: bool) -> None:
    assert unsupported_of_service(one, is_plain=is_plain) == ""


def test_an_external_name_is_told_where_a_file_of_hosts_must_say_it() -> None:
    def named(name: str, *, has_resolver: bool = False) -> str:
        spec = {"type": "ExternalName", "externalName": name}
        service = {"metadata": {"name": "s"}, "spec": spec}
        return unsupported_of_service(service, has_resolver=has_resolver)

    assert named("db.other.svc.cluster.local") == named("db.other.svc.cluster.local.") == ""
    for name in ("example.org", "db.other.svc.elsewhere", "x.db.other.svc.cluster.local"):
        assert named(name).startswith(f"Service s: pods on this machine do not find {name}")
        assert named(name, has_resolver=True) == ""


def test_aliases_of_hosts_need_a_file_of_their_own() -> None:
    spec = {"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a"]}]}
    assert unsupported(spec, {}) == []
    assert unsupported(spec, {}, "plain") == ["hostAliases: needs namespaces"]


@pytest.mark.parametrize(("isolation", "count"), [("root", 0), ("rootless", 0), ("plain", 1)])
def test_a_limit_of_what_is_written_is_kept_where_there_are_namespaces(
    isolation: str, count: int
) -> None:
    limits = {"limits": {"ephemeral-storage": "1Gi"}}
    container = {"name": "main", "resources": limits}
    found = unsupported_fields.unsupported_in_pod(
        {"spec": {"containers": [container]}}, isolation, has_resolver=True
    )
    assert sum(text.startswith("limits.ephemeral-storage") for text in found) == count
