"""The commands that work with jobs, on a cluster that a kubeconfig names."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path

import pytest
import yaml

from tests.cluster.kubelet import running_kubelet
from tests.cluster.plane import START_SECONDS
from tests.cluster.yard import Object, Yard, pytorch_job, until
from trainyard.kube.resources import CONFIG_MAPS, SECRETS


async def trainyard(yard: Yard, *arguments: str, code: int = 0) -> str:
    """What a command prints."""
    command, *rest = arguments  # behind a script, options are the script's
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trainyard.cli.main", command),
        *("--kubeconfig", str(yard.plane.kubeconfig), "--namespace", yard.namespace, *rest),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(START_SECONDS):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == code, printed.decode()
    return printed.decode()


async def test_a_job_from_submit_to_delete(yard: Yard, tmp_path: Path) -> None:
    elastic = {"enabled": True, "minReplicas": 1, "maxReplicas": 4, "expectedReplicas": 2}
    job = pytorch_job("digits", torchrunConfig={"enabled": True}, elastic=elastic)
    container = job["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    container["args"] = container.pop("command")
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    async with yard.operator(), running_kubelet(yard.client, yard.namespace) as kubelet:
        assert "digits" in await trainyard(yard, "submit", "-f", str(file))
        await yard.reaches("digits", "Running")
        assert "Running" in await trainyard(yard, "list")
        assert "worker-1" in await trainyard(yard, "show", "digits")
        # This control plane has no metrics server.
        assert "Install metrics-server" in await trainyard(yard, "top", "digits", code=1)
        assert "Created" in await trainyard(yard, "events", "digits")
        await trainyard(yard, "scale", "digits", "--replicas", "3")
        await until(lambda: yard.pods("digits"), lambda pods: len(pods) == 3)
        await trainyard(yard, "pause", "digits")
        await yard.reaches("digits", "Paused")
        assert "paused" in (await trainyard(yard, "explain", "digits")).lower()
        await trainyard(yard, "resume", "digits")
        await yard.reaches("digits", "Running")
        await until(lambda: yard.pods("digits"), lambda pods: len(pods) == 3)
        for replica in ("worker-0", "worker-1", "worker-2"):
            await kubelet.end(await _running(yard, replica), 0)
        assert "Succeeded" in await trainyard(yard, "wait", "digits")
        (listed,) = json.loads(await trainyard(yard, "list", "-o", "json"))["items"]
        assert listed["status"]["phase"] == "Succeeded"
        await trainyard(yard, "delete", "digits")
        await yard.gone("digits")


async def _running(yard: Yard, replica: str) -> Object:
    """The pod of a replica, once it runs."""

    def mine(pods: list[Object]) -> list[Object]:
        return [
            pod
            for pod in pods
            if pod["metadata"]["name"].endswith(replica) and pod["status"]["phase"] == "Running"
        ]

    return mine(await until(lambda: yard.pods("digits"), mine))[0]


async def test_a_carried_script_goes_with_its_job(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does a variable of the shell. The cluster's own garbage collector takes the ConfigMap and
    the Secret, and no more than that."""
    if not yard.plane.collects:
        pytest.skip("not judged: no garbage collector deletes the ConfigMap")
    script = tmp_path / "train.py"
    script.write_text("print('from afar')\n")
    other = {"metadata": {"name": "far-other"}, "data": {"train.py": "not of any job"}}
    await yard.client.create(CONFIG_MAPS, other, yard.namespace)
    async with yard.operator(), running_kubelet(yard.client, yard.namespace, lambda _: 0):
        monkeypatch.setenv("MY_WORD", "hunter2")
        run = ("run", "--image", "python", "--name", "far", "--env", "MY_WORD", str(script))
        assert "far: Succeeded" in await trainyard(yard, *run)
        job = await yard.job("far")
        carried = await yard.client.get(CONFIG_MAPS, "far-script", yard.namespace)
        assert carried["data"] == {"train.py": script.read_text()}
        (owner,) = carried["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == (job["kind"], job["metadata"]["uid"])
        (pod,) = await yard.pods("far")
        names = [each.get("configMap", {}).get("name") for each in pod["spec"]["volumes"]]
        assert "far-script" in names
        secret = await yard.client.get(SECRETS, "far-env", yard.namespace)
        assert secret["data"] == {"MY_WORD": base64.b64encode(b"hunter2").decode()}
        assert secret["metadata"]["ownerReferences"] == [owner]
        (variable,) = [v for v in _variables(pod) if v["name"] == "MY_WORD"]
        reference = {"name": "far-env", "key": "MY_WORD"}
        assert variable == {"name": "MY_WORD", "valueFrom": {"secretKeyRef": reference}}
        assert "hunter2" not in json.dumps([job, pod])
        await trainyard(yard, "delete", "far")
        await yard.gone("far")
        await until(lambda: _config_maps(yard), lambda names: "far-script" not in names)
        assert "far-other" in await _config_maps(yard)
        await until(lambda: _secrets(yard), lambda names: "far-env" not in names)


def _variables(pod: Object) -> list[Object]:
    found: list[Object] = pod["spec"]["containers"][0]["env"]
    return found


async def _secrets(yard: Yard) -> set[str]:
    found, _ = await yard.client.list(SECRETS, yard.namespace)
    return {each["metadata"]["name"] for each in found}


async def _config_maps(yard: Yard) -> set[str]:
    found, _ = await yard.client.list(CONFIG_MAPS, yard.namespace)
    return {each["metadata"]["name"] for each in found}
