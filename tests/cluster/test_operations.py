"""The pages of docs/operations: each command in them is run, but for those that say why not."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.cluster.kubelet import running_kubelet
from tests.cluster.plane import START_SECONDS, RunningControlPlane
from tests.cluster.yard import PYTORCH, Yard, pytorch_job, until
from trainyard.kinds import server_compatibility
from trainyard.kinds.kind_registry import KINDS
from trainyard.kube.resources import CUSTOM_RESOURCE_DEFINITIONS

PAGES = Path(__file__).parents[2] / "docs/operations"
NOT_RUN = {
    "rollout status": "this control plane runs no Deployments",
    "kubectl -n trainyard logs": "nor pods",
    "get pytorchjobs": "Kubeflow's kinds are not installed",
}
KUBEFLOW = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "digits"},
    "spec": {
        "pytorchReplicaSpecs": {
            "Worker": {
                "replicas": 2,
                "restartPolicy": "OnFailure",
                "template": {
                    "spec": {
                        "containers": [{"name": "pytorch", "image": "python", "command": ["train"]}]
                    }
                },
            }
        }
    },
}


def commands(page: str) -> list[str]:
    """Those of a page's console blocks, in order; one may go on in the next line."""
    text = (PAGES / page).read_text().replace("\\\n", "")
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    return [line.strip()[2:] for block in blocks for line in block.splitlines() if "$ " in line]


async def shell(yard: Yard, command: str) -> str:
    """Run it as somebody would who follows the page; kubectl must be new enough for it."""
    folder = yard.folder / "bin"
    folder.mkdir(exist_ok=True)
    for name, program in (
        ("kubectl", yard.kubectl_program),
        ("trainyard", f"{sys.executable} -m trainyard.cli.main"),
    ):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        script.chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        *("bash", "-o", "pipefail", "-c", command),
        cwd=yard.folder,
        env={
            **os.environ,
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(yard.plane.kubeconfig),
            "HOME": str(yard.folder),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(START_SECONDS):
        out, _ = await process.communicate()
    text = out.decode()
    # doctor finds that no operator runs as those pages install it.
    fine = (0, 1) if "doctor" in command or "can-i" in command else (0,)
    assert process.returncode in fine, f"{command}\n{text}"
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize(
    "page", ["upgrade.md", "permissions.md", "troubleshooting.md", "from-kubeflow.md"]
)
async def test_every_command_of_a_page_runs(page: str, yard: Yard) -> None:
    (yard.folder / "pytorchjob.yaml").write_text(json.dumps(KUBEFLOW))
    version = ".".join(map(str, yard.plane.version))
    found = commands(page)
    assert found
    try:
        for command in found:
            if any(part in command for part in NOT_RUN):
                continue
            await shell(yard, command.replace("--kubernetes-version 1.20", _option(version)))
    finally:
        if page == "upgrade.md":  # it takes the definitions away
            # No List: what serves the definitions may not tell kubectl of core kinds.
            text = yaml.safe_dump_all(server_compatibility.crds_for(server=yard.plane.version))
            for verb in (
                ("apply", "--server-side", "--force-conflicts"),
                ("wait", "--for=condition=Established"),
            ):
                await until(lambda v=verb: _done(yard, v, text), bool)


def _option(version: str) -> str:
    return f"--kubernetes-version {version}"


async def _done(yard: Yard, verb: tuple[str, ...], text: str) -> bool:
    try:
        await yard.kubectl(*verb, "-f", "-", stdin=text)
    except AssertionError as error:  # the old one is still on its way out
        print(error)  # pytest shows it with the failure
        return False
    return True


async def stored_versions(plane: RunningControlPlane, plural: str, name: str) -> set[str]:
    """The apiVersion of an object as etcd holds it."""
    import base64

    prefix = f"{plane.stored_below}/batch.tensorstack.dev/{plural}/"
    key = base64.b64encode(prefix.encode()).decode()
    end = base64.b64encode((prefix[:-1] + "0").encode()).decode()
    url = f"http://127.0.0.1:{plane.etcd_port}/v3/kv/range"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json={"key": key, "range_end": end}) as answer,
    ):
        found = (await answer.json()).get("kvs") or []
    objects = [json.loads(base64.b64decode(each["value"])) for each in found]
    return {each["apiVersion"] for each in objects if each["metadata"]["name"] == name}


async def test_the_stored_version_changes_while_jobs_go_on(yard: Yard) -> None:
    """A version that differs in its name only becomes the stored one, by the page's commands."""
    kind = KINDS["PyTorchTrainingJob"]
    name = kind.crd["metadata"]["name"]
    group = kind.group
    before = await yard.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
    migrate, shorten = (
        command.replace("genericjobs", kind.plural) for command in commands("versions.md")
    )
    async with (
        yard.operator() as operator,
        running_kubelet(yard.client, yard.namespace) as kubelet,
    ):
        await yard.client.create(PYTORCH, pytorch_job("digits"), yard.namespace)
        await yard.reaches("digits", "Running")
        assert await stored_versions(yard.plane, kind.plural, "digits") == {f"{group}/v1beta1"}
        try:
            await _serve_both(yard, name)
            newer = PYTORCH._replace(version="v1beta2")

            async def served() -> Any:
                return await yard.client.get(newer, "digits", yard.namespace)

            await until(lambda: _quietly(served), bool)
            await until(lambda: _run(yard, migrate), bool)
            await until(
                lambda: stored_versions(yard.plane, kind.plural, "digits"),
                lambda versions: versions == {f"{group}/v1beta2"},
            )
            if yard.plane.version >= (1, 24) or "--subresource" in await yard.kubectl(
                "patch", "--help"
            ):
                await shell(yard, shorten)
                told = await yard.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
                assert told["status"]["storedVersions"] == ["v1beta2"]
            # The operator, which reads v1beta1, has seen it all.
            for pod in await yard.pods("digits"):
                await kubelet.end(pod, 0)
            await yard.reaches("digits", "Succeeded")
            assert "Traceback" not in operator.log
        finally:
            await _back(yard, name, before, migrate)


async def _serve_both(yard: Yard, name: str) -> None:
    crd = await yard.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
    old = crd["spec"]["versions"][0]
    crd["spec"]["versions"] = [{**old, "storage": False}, {**old, "name": "v1beta2"}]
    await yard.client.replace(CUSTOM_RESOURCE_DEFINITIONS, crd)


async def _back(yard: Yard, name: str, before: Any, migrate: str) -> None:
    """A rollback, which is the same the other way round."""
    crd = await yard.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
    old, new = crd["spec"]["versions"]
    crd["spec"]["versions"] = [{**old, "storage": True}, {**new, "storage": False}]
    await yard.client.replace(CUSTOM_RESOURCE_DEFINITIONS, crd)
    await until(lambda: _run(yard, migrate), bool)
    crd = await yard.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
    crd["status"]["storedVersions"] = ["v1beta1"]
    await yard.client.replace(CUSTOM_RESOURCE_DEFINITIONS, crd, subresource="status")
    crd = await yard.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
    crd["spec"] = before["spec"]
    await yard.client.replace(CUSTOM_RESOURCE_DEFINITIONS, crd)


async def _run(yard: Yard, command: str) -> bool:
    """Whether nothing was refused; the page says to run it again."""
    try:
        await shell(yard, command)
    except AssertionError as error:
        print(error)
        return False
    return True


async def _quietly(ask: Any) -> Any:
    from trainyard.kube.errors import KubeError

    try:
        return await ask()
    except KubeError:
        return None
