"""`trainyard manifests` as kubectl applies it, and the rights that it grants."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
import yaml

from tests.cluster.kubelet import Kubelet, now, running_kubelet
from tests.cluster.yard import PYTORCH, Yard, pytorch_job, until
from tests.tools import kubectl_path, oldest_and_newest_kubectl, require
from tests.unit.kinds import manifests
from trainyard.kube.credentials import SERVICE_ACCOUNT
from trainyard.kube.errors import Conflict, NotFound
from trainyard.kube.resources import EVENTS, LEASES, Resource


def printed(yard: Yard, *more: str) -> str:
    """For a cluster as old as this one."""
    version = ".".join(map(str, yard.plane.version))
    options = ("--image", "registry/trainyard:1", "--namespace", yard.namespace)
    server = ("--kubernetes-version", version)
    return run(
        [sys.executable, "-m", "trainyard.cli.main", "manifests", *options, *server, *more],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout


KUBECTLS = pytest.mark.parametrize("kubectl", oldest_and_newest_kubectl())


@KUBECTLS
async def test_kubectl_applies_all_of_it_and_again(kubectl: str, yard: Yard) -> None:
    yard.kubectl_program = kubectl_path(kubectl)
    text = printed(yard)
    await yard.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    again = await yard.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    assert len(again.splitlines()) == len(list(yaml.safe_load_all(text)))
    assert await yard.kubectl("diff", "--server-side", "-f", "-", stdin=text) == ""


@KUBECTLS
async def test_kubectl_applies_all_of_it_from_the_client(kubectl: str, yard: Yard) -> None:
    yard.kubectl_program = kubectl_path(kubectl)
    # As custom resources, policies cannot be patched as kubectl patches kinds that it knows.
    objects = [
        each
        for each in yaml.safe_load_all(printed(yard))
        if yard.plane.is_one or "Policy" not in each["kind"]
    ]
    text = yaml.safe_dump_all(objects)
    await yard.kubectl("apply", "-f", "-", stdin=text)
    again = await yard.kubectl("apply", "-f", "-", stdin=text)
    changed = [line for line in again.splitlines() if not line.endswith("unchanged")]
    assert changed == []


TRAINING = {
    "runPolicy": {"cleanUpPolicy": "All", "ttlSecondsAfterFinished": 1},
    "scheduler": {"t9kScheduler": {"queue": "default"}},
}
JOBS = (
    manifests.pytorch(**TRAINING, tensorboardSpec={"logDir": {"pvc": [{"name": "logs"}]}}),
    manifests.deepspeed(**TRAINING),
    manifests.colossalai(scheduler=TRAINING["scheduler"], runPolicy={"cleanUpWorkers": True}),
    manifests.generic(cleanUpPolicy="All", service={"ports": [{"name": "grpc", "port": 2222}]}),
)


async def operators_config(yard: Yard) -> Path:
    """Of the account that `manifests` makes, once the API server knows of its rights."""
    reviews = Resource(
        *("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False)
    )
    rights = (
        {"verb": "list", "resource": "pods"},
        {"verb": "update", "resource": "leases", "group": "coordination.k8s.io"},
    )

    async def allowed() -> bool:
        for right in rights:
            where = {**right, "namespace": yard.namespace}
            asked = {"user": account(yard), "resourceAttributes": where}
            body = {"apiVersion": reviews.api_version, "kind": reviews.kind, "spec": asked}
            if not (await yard.client.create(reviews, body))["status"]["allowed"]:
                return False
        return True

    await until(allowed, bool)
    token = (await yard.kubectl("create", "token", "trainyard-operator")).strip()
    return yard.plane.write_kubeconfig("operator", token)


async def test_the_operator_needs_no_right_but_those_it_is_given(yard: Yard) -> None:
    """All kinds, with the token of the service account that `manifests` makes."""
    await yard.kubectl("apply", "--server-side", "-f", "-", stdin=printed(yard))
    config = await operators_config(yard)
    await yard.alone()
    jobs = [manifests.changed(job, "metadata.name", job["kind"].lower()) for job in JOBS]
    late = pytorch_job("late", runPolicy={"activeDeadlineSeconds": 1})
    async with (
        yard.operator("--gang-scheduler", "t9k", kubeconfig=config, everywhere=True) as operator,
        running_kubelet(yard.client, yard.namespace) as kubelet,
    ):
        await operator.leads()
        for job in (*jobs, late):
            await yard.kubectl("apply", "-f", "-", stdin=manifests.dump(job))
        for job in jobs:
            await yard.reaches(job["metadata"]["name"], "Running", job["kind"])
        # A deadline patches pods; what was taken away is made again; what has ended is deleted.
        await yard.reaches("late", "Failed")
        groups = await yard.kubectl("get", "podgroups.scheduler.tensorstack.dev", "-o", "name")
        assert len(groups.splitlines()) == 3
        for pod in await yard.pods(jobs[0]["metadata"]["name"]):
            with suppress(NotFound, Conflict):  # the first is enough to have all of them replaced
                await kubelet.evict(pod)
        await until(lambda: attempts(yard, jobs[0]), lambda number: number == 2)
        await until(lambda: succeed(yard, kubelet, jobs), bool)
        for job in jobs[:2]:
            await yard.gone(job["metadata"]["name"], job["kind"])
        assert "forbidden" not in operator.log.lower()
        assert "cannot" not in operator.log


async def test_what_a_launch_waits_for_is_read_from_what_a_kubelet_says(yard: Yard) -> None:
    """With the rights that are shipped, in the words of a kubelet (pkg/kubelet/prober)."""
    await yard.kubectl("apply", "--server-side", "-f", "-", stdin=printed(yard))
    config = await operators_config(yard)
    await yard.alone()
    job = manifests.changed(manifests.deepspeed(), "metadata.name", "launching")
    waits = "waiting for worker-1: Connection refused"
    async with (
        yard.operator(kubeconfig=config, everywhere=True) as operator,
        running_kubelet(yard.client, yard.namespace) as kubelet,
    ):
        kubelet.waiting.add("worker-0")
        await operator.leads()
        await yard.kubectl("apply", "-f", "-", stdin=manifests.dump(job))
        await yard.reaches("launching", "Running", job["kind"])
        pod = kubelet.pod("launching", "worker-0")["metadata"]
        event = {
            "metadata": {"name": f"{pod['name']}.1"},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod["name"],
                "namespace": yard.namespace,
                "uid": pod["uid"],
            },
            "type": "Warning",
            "reason": "Unhealthy",
            "message": f"Startup probe failed: trainyard: {waits}\n",
            "lastTimestamp": now(),
            "count": 3,
        }
        await yard.client.create(EVENTS, event, yard.namespace)

        async def launched() -> str:
            found = await yard.job("launching", job["kind"])
            conditions = found["status"]["conditions"]
            return next((c["message"] for c in conditions if c["type"] == "Launched"), "")

        await until(launched, lambda text: waits in text)
        assert "forbidden" not in operator.log.lower()


async def attempts(yard: Yard, job: dict[str, Any]) -> int:
    """How many there have been."""
    found = await yard.job(job["metadata"]["name"], job["kind"])
    return len(found["status"]["attempts"])


async def succeed(yard: Yard, kubelet: Kubelet, jobs: list[dict[str, Any]]) -> bool:
    """End what runs with 0; whether all jobs have succeeded, or are gone since."""
    for pod in list(kubelet.pods.values()):
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]:
            with suppress(NotFound, Conflict):
                await kubelet.end(pod, 0)
    phases = set()
    for job in jobs:
        with suppress(NotFound):
            found = await yard.job(job["metadata"]["name"], job["kind"])
            phases.add(found["status"]["phase"])
    return phases <= {"Succeeded"}


async def test_an_operator_of_one_namespace_needs_a_role_there_only(
    yard: Yard, tmp_path: Path
) -> None:
    """Nodes cannot be granted by one, and are done without; nothing is said to be missing."""
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"namespaces: [{yard.namespace}]\nkinds: [PyTorchTrainingJob]\n")
    objects = list(yaml.safe_load_all(printed(yard, "--config", str(settings))))
    mine = [each for each in objects if each["metadata"].get("namespace") == yard.namespace]
    assert {each["kind"] for each in mine} >= {"Role", "RoleBinding", "ServiceAccount"}
    await yard.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(mine))
    config = await operators_config(yard)
    async with (
        yard.operator("--config", str(settings), kubeconfig=config) as operator,
        running_kubelet(yard.client, yard.namespace, lambda pod: 0),
    ):
        await yard.client.create(PYTORCH, pytorch_job("digits"), yard.namespace)
        await yard.reaches("digits", "Succeeded")
        assert await operator.answer("/readyz") == "leading"
        assert "no right" not in operator.log
        others = "deepspeedjobs.batch.tensorstack.dev"
        asked = ("auth", "can-i", "list", others, f"--as={account(yard)}")
        assert await yard.kubectl(*asked, fails=True) == ""


def account(yard: Yard) -> str:
    """The operator, as the API server knows it."""
    return f"system:serviceaccount:{yard.namespace}:trainyard-operator"


IN_A_POD = """
set -eu
mount -t tmpfs none /run
mkdir -p {folder}
cp {authority} {folder}/ca.crt
printf %s "$TOKEN" > {folder}/token
printf %s "$NAMESPACE" > {folder}/namespace
unset TOKEN
exec "$@"
"""


def own_mounts() -> tuple[str, ...]:
    """A command that runs another one with mounts of its own."""
    command = (require("unshare"), "--user", "--map-root-user", "--mount")
    if run([*command, "true"], capture_output=True, timeout=120).returncode:
        pytest.skip("not judged: no namespaces may be made here")
    return command


async def test_the_deployment_s_container_runs_as_it_is_shipped(yard: Yard, tmp_path: Path) -> None:
    """Its command and arguments, with what a pod has: a service account, and no kubeconfig."""
    objects = {obj["kind"]: obj for obj in yaml.safe_load_all(printed(yard))}
    await yard.kubectl("apply", "--server-side", "-f", "-", stdin=printed(yard))
    token = (await yard.kubectl("create", "token", "trainyard-operator")).strip()
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][0] == "trainyard"
    own = [each["name"] for each in container["env"] if "valueFrom" in each]
    folder = str(SERVICE_ACCOUNT).replace("/var/run/", "/run/")
    script = IN_A_POD.format(folder=folder, authority=yard.plane.authority)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/",
        "TOKEN": token,
        "NAMESPACE": yard.namespace,
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(yard.plane.port),
        **dict.fromkeys(own, yard.namespace),
    }
    command = (
        *(*own_mounts(), "sh", "-c", script, "sh"),
        *(sys.executable, "-m", "trainyard.cli.main", *container["command"][1:]),
        *("--port", "0"),  # any other port, since this is no pod's own network
    )
    async with (
        yard.serving(*command, environment=environment),
        running_kubelet(yard.client, yard.namespace, lambda pod: 0),
    ):
        await yard.client.create(PYTORCH, pytorch_job("digits"), yard.namespace)
        await yard.reaches("digits", "Succeeded")
        lease = await yard.client.get(LEASES, "trainyard-controller", yard.namespace)
        assert lease["spec"]["holderIdentity"]
