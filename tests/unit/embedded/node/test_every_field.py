"""Every field of a pod, a container and a Service changes what happens, or is told as not honoured.

What changes something is listed with who does it; any other field of Kubernetes' schema has a value
here of which `NotHonoured` must say something. A field that a newer schema brings is in neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from trainyard.composition.kinds_extension import EXTENSION
from trainyard.embedded.node.pods.unsupported_fields import (
    unsupported_in_pod,
    unsupported_in_service,
)
from trainyard.schema import kubernetes_schemas

# By the admission and defaults of the API server.
REFUSED = {"overhead", "ephemeralContainers"}
SCHEDULER = {"nodeName", "nodeSelector", "schedulingGates", "tolerations"}
"""Nodes by name and label are taken to mean this machine, which PlacementIgnored tells."""
NODE = {
    "activeDeadlineSeconds",
    "containers",
    "enableServiceLinks",
    "hostAliases",
    "hostname",
    "initContainers",
    "restartPolicy",
    "securityContext",
    "subdomain",
    "terminationGracePeriodSeconds",
    "volumes",
}
NOTHING_TO_DO = {
    "imagePullSecrets": "images stand for environments, nothing is pulled",
    "preemptionPolicy": "no pod is ended for another, as with Never",
    "serviceAccount": "the old name of serviceAccountName, which is set with it",
}
POD: Mapping[str, Any] = {
    "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}},
    "automountServiceAccountToken": True,
    "dnsConfig": {"nameservers": ["1.1.1.1"]},
    "dnsPolicy": "Default",
    "evictionResponders": [{"name": "a"}],
    "hostIPC": True,
    "hostNetwork": True,
    "hostPID": True,
    "hostUsers": False,
    "hostnameOverride": "a",
    "os": {"name": "windows"},
    "priority": 1,
    "priorityClassName": "high",
    "readinessGates": [{"conditionType": "a"}],
    "resourceClaims": [{"name": "a"}],
    "resources": {"limits": {"cpu": "1"}},
    "runtimeClassName": "a",
    "schedulerName": "mine",
    "schedulingGroup": {"podGroupName": "a"},
    "serviceAccountName": "mine",
    "setHostnameAsFQDN": True,
    "shareProcessNamespace": True,
    "topologySpreadConstraints": [{"maxSkew": 1}],
}
CONTAINER_HONOURED = {
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "livenessProbe",
    "name",
    "readinessProbe",
    "resources",
    "startupProbe",
    "stdinOnce",  # with stdin
    "terminationMessagePath",
    "terminationMessagePolicy",
    "workingDir",
    "imagePullPolicy",  # nothing is pulled
    "stdin",
    "tty",
}
CONTAINER: Mapping[str, Any] = {
    "lifecycle": {"stopSignal": "SIGUSR1"},
    "ports": [{"containerPort": 80, "hostPort": 80}],
    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    "restartPolicy": "Always",
    "restartPolicyRules": [{"action": "Restart"}],
    "securityContext": {"procMount": "Unmasked"},
    "volumeDevices": [{"name": "a", "devicePath": "/dev/a"}],
    "volumeMounts": [{"name": "a", "mountPath": "/a", "mountPropagation": "Bidirectional"}],
}
SERVICE_HONOURED = {
    "allocateLoadBalancerNodePorts",  # they are the only way in
    "clusterIP",
    "clusterIPs",
    "internalTrafficPolicy",  # all pods are of this node
    "ipFamilies",
    "publishNotReadyAddresses",
    "selector",
    "sessionAffinityConfig",  # with sessionAffinity
    "trafficDistribution",  # likewise
    "type",
}
SERVICE: Mapping[str, Any] = {
    "externalIPs": ["1.2.3.4"],
    "externalName": "example.org",
    "externalTrafficPolicy": "Local",
    "healthCheckNodePort": 31000,
    "ipFamilyPolicy": "RequireDualStack",
    "loadBalancerClass": "a/b",
    "loadBalancerIP": "1.2.3.4",
    "loadBalancerSourceRanges": ["1.2.3.4/32"],
    "ports": [{"port": 53, "protocol": "SCTP"}],
    "sessionAffinity": "ClientIP",
}


def fields(file: str, kind: str) -> set[str]:
    return set(kubernetes_schemas.definitions(file)[kind]["properties"])


def unsupported(spec: Mapping[str, Any], container: Mapping[str, Any]) -> list[str]:
    containers = [{"name": "main", **container}]
    pod = {"spec": {"containers": containers, **spec}}
    names = EXTENSION.scheduler_names
    return unsupported_in_pod(pod, "root", has_resolver=False, scheduler_names=names)


def unsupported_of_service(field: str) -> str:
    kind = {"type": "ExternalName"} if field == "externalName" else {"clusterIP": "10.96.0.1"}
    service = {"metadata": {"name": "s"}, "spec": {**kind, field: SERVICE[field]}}
    return unsupported_in_service(service, has_resolver=False, is_plain=False)


def test_every_field_has_its_place() -> None:
    pod = REFUSED | SCHEDULER | NODE | NOTHING_TO_DO.keys()
    assert not pod & POD.keys()
    assert fields("pod_template", "PodSpec") == pod | POD.keys()
    assert not CONTAINER_HONOURED & CONTAINER.keys()
    assert fields("pod_template", "Container") == CONTAINER_HONOURED | CONTAINER.keys()
    assert not SERVICE_HONOURED & SERVICE.keys()
    assert fields("core", "ServiceSpec") == SERVICE_HONOURED | SERVICE.keys()


@pytest.mark.parametrize("field", POD)
def test_a_field_of_a_pod_that_nothing_here_does_is_told(field: str) -> None:
    (text,) = unsupported({field: POD[field]}, {})
    assert field in text.partition(":")[0]


@pytest.mark.parametrize("field", CONTAINER)
def test_a_field_of_a_container_that_nothing_here_does_is_told(field: str) -> None:
    (text,) = unsupported({}, {field: CONTAINER[field]})
    assert " of container main: " in text


@pytest.mark.parametrize("field", SERVICE)
def test_a_field_of_a_service_that_nothing_here_does_is_told(field: str) -> None:
    assert unsupported_of_service(field).startswith("Service s: ")


def test_defaults_and_what_jobs_are_given_are_not_told() -> None:
    given = {
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "hostUsers": True,
        "os": {"name": "linux"},
        "automountServiceAccountToken": False,
        "affinity": {"nodeAffinity": {}},
    }
    assert unsupported(given, {}) == unsupported({"schedulerName": "t9k-scheduler"}, {}) == []
    usual = {"sessionAffinity": "None", "externalTrafficPolicy": "Cluster", "type": "LoadBalancer"}
    spec = {**usual, "clusterIP": "10.96.0.1", "ports": [{"port": 80, "protocol": "TCP"}]}
    service = {"metadata": {"name": "s"}, "spec": spec}
    assert unsupported_in_service(service, has_resolver=False, is_plain=False) == ""
