"""`trainyard doctor` of a real cluster: what is in order, what is not, and what to do about it."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from tests.cluster.test_readiness import bind_role, shipped, token, without
from tests.cluster.yard import Yard, until
from trainyard.kinds.kind_registry import KINDS
from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kube.errors import NotFound
from trainyard.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES, PODS
from trainyard.kube.transport import Request
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.install.install_manifests import (
    Install,
    deployment,
    dump,
    role_objects,
    service_account,
    settings_file,
)

Found = dict[str, list[dict[str, str]]]


async def doctor(yard: Yard, *options: str, kubeconfig: Path | None = None, code: int = 0) -> Found:
    """What it finds, by check."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trainyard.cli.main", "doctor", "-o", "json"),
        *("--kubeconfig", str(kubeconfig or yard.plane.kubeconfig), "-n", yard.namespace),
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == code, f"{out.decode()}\n{err.decode()}"
    found: Found = {}
    for each in json.loads(out):
        found.setdefault(each["check"], []).append(each)
    return found


def address() -> str:
    """An address of this machine that others can reach, as a pod's is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing
        except OSError:
            return ""
        return str(probe.getsockname()[0])


async def a_pod(yard: Yard, ip: str, port: int) -> None:
    """What looks like the operator's pod, so that the API server leads to its endpoints."""
    body: dict[str, Any] = {
        "metadata": {
            "name": "operator",
            "labels": {"app.kubernetes.io/name": "trainyard-operator"},
        },
        "spec": {
            "serviceAccountName": "trainyard-operator",
            "containers": [
                {
                    "name": "operator",
                    "image": "trainyard",
                    "args": ["operator", "--namespace", yard.namespace],
                    "ports": [{"name": "http", "containerPort": port}],
                }
            ],
        },
    }
    await yard.client.create(PODS, body, yard.namespace)
    status = {"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}}
    path = PODS.path(yard.namespace, "operator", "status")
    kind = "application/merge-patch+json"
    await yard.client.raw(Request("PATCH", path, orjson.dumps(status), kind), "give it an address")


async def clear_of_leases(yard: Yard) -> None:
    """Earlier operators' Leases, held by nobody, may be there until their namespaces are gone."""
    leases, _ = await yard.client.list(LEASES)
    for metadata in (each["metadata"] for each in leases):
        if metadata["name"].startswith("trainyard-controller"):
            with suppress(NotFound):
                await yard.client.delete(LEASES, metadata["name"], metadata["namespace"])


async def test_a_namespace_that_is_not_there(yard: Yard) -> None:
    (found,) = (await doctor(yard, "-n", "nowhere", code=1))["namespace"]
    assert found["state"] == "problem"
    assert found["text"].startswith("nowhere does not exist")
    assert found["fix"].endswith("kubectl create namespace nowhere")


async def test_a_cluster_in_order_and_what_it_lacks(yard: Yard) -> None:
    await clear_of_leases(yard)
    rules = shipped(yard)
    await bind_role(yard, rules)
    kubeconfig = await token(yard)
    name = ("--lease-name", f"trainyard-controller-{yard.namespace}", "--host", "0.0.0.0")
    async with yard.operator(*name, kubeconfig=kubeconfig) as operator:
        await operator.leads()
        ip, port = address(), int(operator.url.rpartition(":")[2])
        if ip:
            await a_pod(yard, ip, port)
        found = await doctor(yard)
        for check in ("API server", "clock of the server", "clock of the leader", "your rights"):
            assert [each["state"] for each in found[check]] == ["ok"], found[check]
        assert found["definitions"][0]["text"].startswith(f"{len(KINDS)} of {len(KINDS)} are")
        leases = [each["text"] for each in found["Lease"]]
        assert any(f"{yard.namespace}/trainyard-controller" in text for text in leases)
        assert found["gang scheduler"][0]["state"] == "note"
        assert "namespace" not in found
        if ip:
            assert found["operator"][0]["text"] == "operator: leading"
            assert found["events"][0]["text"] == "none was lost"
            assert found["operator's rights"][0]["state"] == "ok"
        await bind_role(yard, without(rules, "configmaps", "create"))
        found = await doctor(yard, "--as-operator", kubeconfig=kubeconfig, code=1)
        assert found["operator's rights"][0]["text"] == (
            f"no right to create configmaps in namespace {yard.namespace}"
        )
        if ip:
            found = await doctor(yard, code=1)
            assert "create configmaps" in found["operator's rights"][0]["text"]
    # Whoever has only the operator's rights submits nothing and sees no logs.
    found = await doctor(yard, kubeconfig=kubeconfig, code=1)
    assert "no right to get pods/log" in found["your rights"][0]["text"]


async def installed(yard: Yard, operator: OperatorSettings, **settings: Any) -> None:
    """The operator's account with the rights that it needs then, its file of settings, and a pod as
    the Deployment makes it, which runs nowhere."""
    install = Install("trainyard", yard.namespace, operator=operator, settings=settings)
    template = deployment(install)["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] |= {"name": "operator", "namespace": yard.namespace}
    objects = [service_account(install), *role_objects(install), settings_file(install), pod]
    await yard.kubectl("apply", "--server-side", "-f", "-", stdin=dump(objects))


async def test_an_operator_is_judged_by_its_own_settings(yard: Yard) -> None:
    """Its rights, Lease and scheduler are those that its arguments, variables and file say."""
    settings = {
        "namespaces": [yard.namespace],
        "kinds": ["PyTorchTrainingJob"],
        "gangScheduler": "volcano",
        "leaseName": "mine",
    }
    operator = OperatorSettings(
        namespaces=(yard.namespace,),
        kinds=("PyTorchTrainingJob",),
        lifecycle=Settings(gang_backend=GangBackend.VOLCANO),
    )
    await installed(yard, operator, **settings)
    lease = {
        "metadata": {"name": "mine"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": in_an_hour()},
    }
    await yard.client.create(LEASES, lease, yard.namespace)
    found = await until(  # the API server learns of new rights after a while
        lambda: doctor(yard, code=1),
        lambda found: [each["state"] for each in found["operator's rights"]] == ["ok"],
    )
    assert "gangScheduler=volcano" in found["settings"][0]["text"]
    assert any(f"{yard.namespace}/mine is held by a" in each["text"] for each in found["Lease"])
    assert "volcano, which is not served here" in found["gang scheduler"][0]["text"]


async def test_settings_that_an_operator_refuses_are_told_with_the_reason(yard: Yard) -> None:
    await installed(yard, OperatorSettings(namespaces=(yard.namespace,)), leaseDuration="5s")
    told = (await doctor(yard, code=1))["settings"][0]
    assert "leaseDuration (5s, from its file) must be more than setting leaseRenew" in told["text"]


def in_an_hour() -> str:
    """A time until when a Lease is seen as held."""
    return (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def test_a_definition_that_is_older_is_told_with_the_command_that_mends_it(
    yard: Yard,
) -> None:
    name = KINDS["GenericJob"].crd["metadata"]["name"]
    current = await yard.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
    older = json.loads(json.dumps(current))
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = schema["properties"]["spec"]
    del spec["properties"]["runPolicy"]
    spec.pop("x-kubernetes-validations", None)  # which speak of it, where they are kept
    await yard.client.replace(CUSTOM_RESOURCE_DEFINITIONS, older)
    try:
        told = (await doctor(yard, code=1))["definitions"][0]
        assert f"{name} lacks fields of v1beta1, it is older: spec.runPolicy" in told["text"]
        assert told["fix"].endswith("| kubectl apply --server-side -f -")
    finally:
        stored = await yard.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        stored["spec"] = current["spec"]
        await yard.client.replace(CUSTOM_RESOURCE_DEFINITIONS, stored)


async def test_nobody_there_is_one_sentence(yard: Yard) -> None:
    kubeconfig = yard.plane.write_kubeconfig("nobody", "x", port=1)
    found = await doctor(yard, kubeconfig=kubeconfig, code=1)
    assert list(found) == ["API server"]
    assert found["API server"][0]["state"] == "problem"
