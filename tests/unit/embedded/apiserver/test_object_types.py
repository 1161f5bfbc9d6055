"""What no loop of the cluster could read is refused before it is stored, by every door."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from tests.unit.kinds import manifests as m
from trainyard.composition.kinds_extension import EXTENSION, RESOURCES
from trainyard.embedded.apiserver.auth.request_identity import OWNER
from trainyard.embedded.apiserver.http.http_messages import Request, Response
from trainyard.embedded.apiserver.router import Router
from trainyard.embedded.controllers.housekeeping import Housekeeping
from trainyard.embedded.controllers.queue_controller import QueueController
from trainyard.embedded.registry import Registry
from trainyard.embedded.scheduler.machine_capacity import Capacity
from trainyard.embedded.scheduler.scheduler import Scheduler, SchedulerSettings

DEFAULT = "/api/v1/namespaces/default"
PODS, SERVICES, NODES = f"{DEFAULT}/pods", f"{DEFAULT}/services", "/api/v1/nodes"
CONFIG_MAPS, SECRETS, EVENTS = f"{DEFAULT}/configmaps", f"{DEFAULT}/secrets", f"{DEFAULT}/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
QUEUES = "/apis/scheduler.tensorstack.dev/v1beta1/queues"
JOBS = "/apis/batch.tensorstack.dev/v1beta1/namespaces/default/genericjobs"
JSON = "application/json"
TRAININGS = JOBS.replace("genericjobs", "pytorchtrainingjobs")
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
CONTAINER = {"name": "main", "image": "python"}


class Cluster:
    """An API in process, and the loops that follow what is stored."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._api = Router(registry, None)
        settings = SchedulerSettings(
            "node", Capacity({"cpu": 4000, "memory": 1 << 30, "pods": 9}), extension=EXTENSION
        )
        services = (
            Scheduler(registry, settings),
            Housekeeping(registry),
            QueueController(registry, EXTENSION),
        )
        self._loops = [asyncio.ensure_future(service.run()) for service in services]

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        type_: str = JSON,
        **query: str,
    ) -> tuple[int, Any]:
        headers = {"content-type": type_, "accept": TABLE if method == "TABLE" else "*/*"}
        method = "GET" if method == "TABLE" else method
        data = b"" if body is None else json.dumps(body).encode()
        queries = list(query.items())
        answer = await self._api(Request(method, path, query, queries, headers, data, OWNER))
        assert isinstance(answer, Response)
        return answer.status, orjson.loads(answer.body)

    async def stands(self) -> None:
        """Raises what any of the loops has ended with."""
        await asyncio.sleep(0.05)
        for loop in self._loops:
            if loop.done():
                loop.result()

    async def close(self) -> None:
        await self.registry.close()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    made = Cluster(registry)
    yield made
    await made.close()


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": {"containers": [CONTAINER], **spec}}


def service(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}], **spec}}


def named(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", **metadata}}


def queue(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "scheduler.tensorstack.dev/v1beta1", "kind": "Queue", **named(), **fields}


def main(**fields: Any) -> dict[str, Any]:
    return pod(containers=[{**CONTAINER, **fields}])


REFUSED: list[tuple[str, Any, int, str]] = [
    # Types: 400, as kube-apiserver, which cannot decode them.
    (PODS, {**pod(), "spec": "x"}, 400, "spec"),
    (PODS, pod(containers="x"), 400, "spec.containers"),
    (PODS, pod(nodeName=3), 400, "spec.nodeName"),
    (PODS, pod(nodeSelector=["a"]), 400, "spec.nodeSelector"),
    (PODS, main(resources={"limits": {"cpu": "much"}}), 400, "limits.cpu"),
    (PODS, main(readinessProbe={"periodSeconds": 2**40}), 400, "periodSeconds"),
    (NODES, {**named(), "status": "x"}, 400, "status"),
    (NODES, {**named(), "spec": "x"}, 400, "spec"),
    (NODES, {**named(), "status": {"conditions": [{"type": 1}]}}, 400, "status.conditions[0].type"),
    (SERVICES, service(ports=[{"port": "http"}]), 400, "spec.ports[0].port"),
    (EVENTS, {**named(), "involvedObject": "x"}, 400, "involvedObject"),
    (EVENTS, {**named(), "involvedObject": {}, "lastTimestamp": "noon"}, 400, "lastTimestamp"),
    (LEASES, {**named(), "spec": {"renewTime": 5}}, 400, "spec.renewTime"),
    (f"{DEFAULT}/endpoints", {**named(), "subsets": [{"addresses": 1}]}, 400, "addresses"),
    (f"{DEFAULT}/serviceaccounts", {**named(), "secrets": 3}, 400, "secrets"),
    (f"{DEFAULT}/persistentvolumeclaims", {**named(), "spec": 1}, 400, "spec"),
    (SECRETS, {**named(), "data": {"a": "not base64!"}}, 400, "data.a"),
    (CONFIG_MAPS, {**named(), "data": {"a": 1}}, 400, "data.a"),
    ("/api/v1/namespaces", {**named(), "spec": []}, 400, "spec"),
    (CONFIG_MAPS, named(ownerReferences="x"), 400, "metadata.ownerReferences"),
    (CONFIG_MAPS, named(finalizers=[1]), 400, "metadata.finalizers[0]"),
    (CONFIG_MAPS, named(labels={"a": 1}), 400, "metadata.labels.a"),
    (CONFIG_MAPS, named(managedFields=[3]), 400, "metadata.managedFields[0]"),
    (CONFIG_MAPS, named(creationTimestamp=1), 400, "metadata.creationTimestamp"),
    (CONFIG_MAPS, named(deletionGracePeriodSeconds="x"), 400, "deletionGracePeriodSeconds"),
    (CONFIG_MAPS, named(generateName=[]), 400, "metadata.generateName"),
    (QUEUES, queue(**named(ownerReferences="x")), 400, "metadata.ownerReferences"),
    (JOBS, {**m.generic(), "metadata": {"name": "x", "labels": 3}}, 400, "metadata.labels"),
    # Values: 422.
    (PODS, {**pod(), "spec": {}}, 422, "spec.containers"),
    (PODS, named(), 422, "spec.containers"),
    (PODS, pod(containers=[CONTAINER, CONTAINER]), 422, "spec.containers[1].name"),
    (PODS, main(name="../../x"), 422, "spec.containers[0].name"),
    (PODS, main(ports=[{"containerPort": 99_999_999}]), 422, "containerPort"),
    (PODS, main(livenessProbe={"exec": {}}), 422, "livenessProbe.exec.command"),
    (PODS, main(readinessProbe={"tcpSocket": {"port": 0}}), 422, "tcpSocket.port"),
    (PODS, main(livenessProbe={"exec": {"command": ["a"]}, "periodSeconds": -1}), 422, "period"),
    (PODS, pod(restartPolicy="Sometimes"), 422, "spec.restartPolicy"),
    (PODS, pod(restartPolicy="ExitCode"), 422, "spec.restartPolicy"),
    (PODS, pod(subdomain="../../etc"), 422, "spec.subdomain"),
    (PODS, pod(securityContext={"runAsUser": -1}), 422, "securityContext.runAsUser"),
    (SERVICES, service(clusterIP="x"), 422, "spec.clusterIP"),
    (SERVICES, service(clusterIP="8.8.8.8"), 422, "spec.clusterIP"),
    (SERVICES, service(ports=[{"port": 99_999_999}]), 422, "spec.ports[0].port"),
    (
        SERVICES,
        service(ports=[{"name": "a", "port": 1}, {"name": "b", "port": 1}]),
        422,
        "ports[1]",
    ),
    (SERVICES, service(ports=[{"port": 1}, {"port": 2}]), 422, "spec.ports[0].name"),
    (SERVICES, service(ports=[{"port": 1, "targetPort": 70_000}]), 422, "targetPort"),
    (SERVICES, service(type="NodePort", ports=[{"port": 1, "nodePort": 22}]), 422, "nodePort"),
    (SERVICES, service(type="Magic"), 422, "spec.type"),
    (SERVICES, {"metadata": {"name": "9x"}, "spec": {"clusterIP": "None"}}, 422, "metadata.name"),
    (EVENTS, named(), 422, "involvedObject"),
    (SECRETS, {**named(), "data": {"../../x": "YQ=="}}, 422, "data"),
    (CONFIG_MAPS, {**named(), "data": {"..": "x"}}, 422, "data"),
    (CONFIG_MAPS, {"metadata": {"generateName": "../"}}, 422, "metadata.generateName"),
    (CONFIG_MAPS, named(ownerReferences=[{"kind": "Pod"}]), 422, "ownerReferences[0].uid"),
    (CONFIG_MAPS, named(finalizers=[""]), 422, "metadata.finalizers"),
    (QUEUES, queue(spec=3), 422, "spec"),
    (QUEUES, queue(spec={"maxDuration": "soon"}), 422, "spec.maxDuration"),
    ("/api/v1/namespaces", {"metadata": {"name": "a.b"}}, 422, "metadata.name"),
]


@pytest.mark.parametrize(("path", "body", "code", "field"), REFUSED)
async def test_it_is_refused_with_the_field_that_is_wrong(
    cluster: Cluster, path: str, body: Any, code: int, field: str
) -> None:
    found, status = await cluster("POST", path, body)
    assert (found, status["kind"]) == (code, "Status"), status
    assert field in status["message"]
    assert any(field in cause["field"] for cause in status["details"]["causes"])
    await cluster.stands()
    assert (await cluster("TABLE", path))[0] == 200


WHOLE: list[tuple[str, Any]] = [
    (PODS, pod()),
    (NODES, {**named(), "status": {}}),
    (SERVICES, service()),
    (CONFIG_MAPS, {**named(), "data": {"a": "b"}}),
    (EVENTS, {**named(), "involvedObject": {"kind": "Pod", "name": "y"}}),
    (QUEUES, queue(spec={"priority": 1})),
    (JOBS, {**m.generic(), "metadata": {"name": "x"}}),
]
WRONG = {"metadata": {"ownerReferences": "x"}}


@pytest.mark.parametrize(("path", "body"), WHOLE)
async def test_no_change_makes_of_an_object_what_no_creation_may(
    cluster: Cluster, path: str, body: Any
) -> None:
    assert (await cluster("POST", path, body))[0] == 201
    one, identity = f"{path}/x", {"apiVersion": "v1", "kind": "X"}
    whole = (await cluster("GET", one))[1]
    identity = {key: whole[key] for key in ("apiVersion", "kind")}
    broken = {**whole, "metadata": {**whole["metadata"], "ownerReferences": "x"}}
    operation = [{"op": "add", "path": "/metadata/ownerReferences", "value": "x"}]
    changes: list[tuple[str, str, Any, int]] = [
        ("PUT", JSON, broken, 400),
        ("PATCH", MERGE, WRONG, 422),
        ("PATCH", JSON_PATCH, operation, 422),
        ("PATCH", APPLY, {**identity, "metadata": {"name": "x", "ownerReferences": "x"}}, 400),
    ]
    if path not in (QUEUES, JOBS):
        changes.append(("PATCH", STRATEGIC, WRONG, 422))
    for method, type_, change, code in changes:
        found, status = await cluster(method, one, change, type_, fieldManager="test")
        assert (found, "ownerReferences" in status["message"]) == (code, True), (type_, status)
    assert (await cluster("GET", one))[1]["metadata"].get("ownerReferences") is None
    await cluster.stands()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (PODS, {"containerStatuses": [{"name": 1}]}),
        (PODS, {"conditions": "x"}),
        (PODS, {"startTime": "noon"}),
        (NODES, {"addresses": [{"type": "InternalIP", "address": 3}]}),
        (QUEUES, {"conditions": [3]}),
        (JOBS, {"tasks": "x"}),
        (JOBS, "x"),
    ],
)
async def test_a_status_is_held_by_its_types(cluster: Cluster, path: str, status: Any) -> None:
    assert (await cluster("POST", path, dict(WHOLE)[path]))[0] == 201
    found, answer = await cluster("PATCH", f"{path}/x/status", {"status": status}, MERGE)
    assert (found, "status" in answer["message"]) == (422, True), answer
    await cluster.stands()
    assert (await cluster("TABLE", path))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "type_"),
    [
        ("POST", f"{PODS}/x/binding", {"target": "x"}, JSON),
        ("POST", f"{PODS}/x/binding", {"target": {"name": 3}}, JSON),
        ("POST", f"{PODS}/x/eviction", {"deleteOptions": "x"}, JSON),
        (
            "POST",
            f"{PODS}/x/eviction",
            {"deleteOptions": {"gracePeriodSeconds": "x"}},
            JSON,
        ),
        ("DELETE", f"{PODS}/x", {"gracePeriodSeconds": "x"}, JSON),
        ("DELETE", f"{PODS}/x", {"preconditions": "x"}, JSON),
        ("PUT", f"{TRAININGS}/x/scale", {"spec": "x"}, JSON),
        ("PATCH", f"{TRAININGS}/x/scale", {"spec": "x"}, MERGE),
        ("PUT", "/api/v1/namespaces/default/finalize", {"spec": "x"}, JSON),
    ],
)
async def test_a_subresource_is_held_by_its_types(
    cluster: Cluster, method: str, path: str, body: Any, type_: str
) -> None:
    await cluster("POST", PODS, pod())
    elastic = {"enabled": True, "minReplicas": 1, "expectedReplicas": 1, "maxReplicas": 2}
    job = m.pytorch(elastic=elastic, torchrunConfig={"enabled": True})
    assert (await cluster("POST", TRAININGS, {**job, "metadata": {"name": "x"}}))[0] == 201
    found, answer = await cluster(method, path, body, type_)
    assert (found, answer["kind"]) == (422 if method == "PATCH" else 400, "Status"), answer
    await cluster.stands()


async def test_a_null_is_an_absent_field(cluster: Cluster) -> None:
    wanted = pod(initContainers=None, volumes=None, nodeSelector=None)
    wanted["metadata"] |= {"labels": None, "creationTimestamp": None}
    assert (await cluster("POST", PODS, wanted))[0] == 201
    stored = (await cluster("GET", f"{PODS}/x"))[1]
    assert {"initContainers", "volumes", "nodeSelector"}.isdisjoint(stored["spec"])
    assert "labels" not in stored["metadata"]


async def test_a_status_has_what_go_would_write_for_absent_words(cluster: Cluster) -> None:
    assert (await cluster("POST", PODS, pod()))[0] == 201
    change = {"status": {"containerStatuses": [{"name": "main"}]}}
    assert (await cluster("PATCH", f"{PODS}/x/status", change, MERGE))[0] == 200
    (container,) = (await cluster("GET", f"{PODS}/x"))[1]["status"]["containerStatuses"]
    expected = {"name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    assert container == expected


async def test_a_probe_without_a_period_does_not_run_without_end(cluster: Cluster) -> None:
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 0}
    assert (await cluster("POST", PODS, main(livenessProbe=probe)))[0] == 201
    stored = (await cluster("GET", f"{PODS}/x"))[1]["spec"]["containers"][0]["livenessProbe"]
    assert (stored["periodSeconds"], stored["failureThreshold"]) == (10, 3)


async def test_an_address_and_a_node_port_are_one_services_own(cluster: Cluster) -> None:
    wanted = service(
        type="NodePort", clusterIP="10.96.0.9", ports=[{"port": 1, "nodePort": 30_001}]
    )
    assert (await cluster("POST", SERVICES, wanted))[0] == 201
    again = {**wanted, "metadata": {"name": "y"}}
    found, status = await cluster("POST", SERVICES, again)
    assert (found, "already allocated" in status["message"]) == (422, True)
    again["spec"] = {**again["spec"], "clusterIP": ""}
    found, status = await cluster("POST", SERVICES, again)
    assert (found, "nodePort" in status["message"]) == (422, True)


@pytest.mark.parametrize("address", ["None", "10.96.0.9"])
async def test_the_address_of_a_service_stays_which_it_says_alone(
    cluster: Cluster, address: str
) -> None:
    wanted = service(clusterIP=address, ports=[{"port": 1}])
    assert (await cluster("POST", SERVICES, wanted))[0] == 201
    patch = {"spec": {"clusterIP": "10.96.0.12"}}
    name = wanted["metadata"]["name"]
    found, status = await cluster("PATCH", f"{SERVICES}/{name}", patch, STRATEGIC)
    assert found == 422
    causes = [(each["field"], each["message"]) for each in status["details"]["causes"]]
    assert causes == [
        ("spec.clusterIPs[0]", "Invalid value: '10.96.0.12': may not change once set")
    ]


async def test_what_cannot_be_written_as_json_is_no_defect(cluster: Cluster) -> None:
    deep: Any = "x"
    for _ in range(300):
        deep = {"a": deep}
    body = {**m.generic(), "metadata": {"name": "x", "annotations": {"a": deep}}}
    assert (await cluster("POST", JOBS, body))[0] == 400
    assert (await cluster("POST", PODS, pod(brandNew=deep)))[0] == 400


async def test_what_is_applied_into_a_map_that_was_applied_empty_stays(cluster: Cluster) -> None:
    place = "/api/v1/namespaces/default/configmaps/settings"
    shape = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    for data in ({"a": "1", "b": "2"}, {}, {"a": "3"}):
        body = {**shape, "data": data}
        status, made = await cluster("PATCH", place, body, APPLY, fieldManager="me")
        assert status in (200, 201)
        assert made.get("data", {}) == data


@pytest.mark.parametrize(("manager", "status"), [("kubectl", 200), ("robot", 409)])
async def test_only_kubectl_takes_over_what_it_applied_itself(
    cluster: Cluster, manager: str, status: int
) -> None:
    place = "/api/v1/namespaces/default/configmaps"
    shape = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}
    last = json.dumps({**shape, "metadata": {"name": "settings"}})
    note = {"kubectl.kubernetes.io/last-applied-configuration": last}
    written = {**shape, "metadata": {"name": "settings", "annotations": note}}
    maker = "kubectl-client-side-apply"
    assert (await cluster("POST", place, written, fieldManager=maker))[0] == 201
    applied = {**shape, "metadata": {"name": "settings"}, "data": {"a": "2"}}
    found, answer = await cluster(
        "PATCH", f"{place}/settings", applied, APPLY, fieldManager=manager
    )
    assert found == status
    if status == 409:
        assert 'conflict with "kubectl-client-side-apply"' in answer["message"]


async def test_kubectl_finds_what_it_applied_last_after_its_server_side_apply(
    cluster: Cluster,
) -> None:
    place = "/api/v1/namespaces/default/configmaps"
    key = "kubectl.kubernetes.io/last-applied-configuration"
    shape = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}
    written = {**shape, "metadata": {"name": "settings", "annotations": {key: "{}"}}}
    assert (await cluster("POST", place, written))[0] == 201

    async def applied(manager: str, value: str) -> Any:
        body = {**shape, "metadata": {"name": "settings"}, "data": {"a": value}}
        status, answer = await cluster(
            "PATCH", f"{place}/settings", body, APPLY, fieldManager=manager, force="true"
        )
        assert status == 200
        return answer["metadata"]["annotations"]

    last = json.loads((await applied("kubectl", "2"))[key])
    metadata = {"name": "settings", "namespace": "default", "annotations": {}}
    assert last == {**shape, "metadata": metadata, "data": {"a": "2"}}
    assert json.loads((await applied("robot", "3"))[key])["data"] == {"a": "2"}
    large = {**shape, "metadata": {"name": "settings"}, "data": {"a": "x" * (300 << 10)}}
    status, answer = await cluster(
        "PATCH", f"{place}/settings", large, APPLY, fieldManager="kubectl", force="true"
    )
    assert (status, answer["metadata"].get("annotations", {})) == (200, {})


async def test_resource_version_0_of_an_update_is_no_precondition(cluster: Cluster) -> None:
    place = "/api/v1/namespaces/default/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    assert (await cluster("POST", place, body))[0] == 201
    changed = {**body, "metadata": {"name": "settings", "resourceVersion": "0"}, "data": {"a": "1"}}
    status, answer = await cluster("PUT", f"{place}/settings", changed)
    assert (status, answer.get("data")) == (200, {"a": "1"})
    patch = {"metadata": {"resourceVersion": "0"}, "data": {"a": "2"}}
    status, answer = await cluster("PATCH", f"{place}/settings", patch, MERGE)
    assert (status, answer.get("data")) == (200, {"a": "2"})


async def test_resource_version_0_is_none_where_one_is_demanded(cluster: Cluster) -> None:
    assert (await cluster("POST", JOBS, m.generic()))[0] == 201
    name = m.generic()["metadata"]["name"]
    _, job = await cluster("GET", f"{JOBS}/{name}")
    job["metadata"]["resourceVersion"] = "0"
    status, answer = await cluster("PUT", f"{JOBS}/{name}", job)
    assert (status, "must be specified for an update" in answer["message"]) == (422, True)
