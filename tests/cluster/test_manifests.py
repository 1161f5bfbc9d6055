"""`trainyard manifests` as kubectl applies it, and the rights that it grants."""

from __future__ import annotations

import sys
from subprocess import run

import yaml

from tests.cluster.kubelet import running_kubelet
from tests.cluster.yard import Yard
from tests.unit.api import manifests


def printed(yard: Yard) -> str:
    """For a cluster as old as this one."""
    version = ".".join(map(str, yard.plane.version))
    options = ("--image", "registry/trainyard:1", "--namespace", yard.namespace)
    server = ("--kubernetes-version", version)
    return run(
        [sys.executable, "-m", "trainyard.cli.main", "manifests", *options, *server],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


async def test_kubectl_applies_all_of_it_and_again(yard: Yard) -> None:
    text = printed(yard)
    await yard.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    again = await yard.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    assert len(again.splitlines()) == len(list(yaml.safe_load_all(text)))
    assert await yard.kubectl("diff", "--server-side", "-f", "-", stdin=text) == ""


async def test_kubectl_applies_all_of_it_from_the_client(yard: Yard) -> None:
    text = printed(yard)
    await yard.kubectl("apply", "-f", "-", stdin=text)
    again = await yard.kubectl("apply", "-f", "-", stdin=text)
    changed = [line for line in again.splitlines() if not line.endswith("unchanged")]
    assert changed == []


async def test_the_operator_needs_no_right_but_those_it_is_given(yard: Yard) -> None:
    """All kinds, with the token of the service account that `manifests` makes."""
    await yard.kubectl("apply", "--server-side", "-f", "-", stdin=printed(yard))
    token = (await yard.kubectl("create", "token", "trainyard-operator")).strip()
    config = yard.plane.write_kubeconfig("operator", token)
    jobs = [
        manifests.changed(build(), "metadata.name", kind.lower())
        for kind, build in manifests.BUILDERS.items()
    ]
    async with (
        yard.operator("--gang-scheduler", "t9k", kubeconfig=config, everywhere=True) as operator,
        running_kubelet(yard.client, yard.namespace) as kubelet,
    ):
        await operator.leads()
        for job in jobs:
            await yard.kubectl("apply", "-f", "-", stdin=manifests.dump(job))
        for job in jobs:
            await yard.reaches(job["metadata"]["name"], "Running", job["kind"])
        assert "forbidden" not in operator.log.lower()
        for pod in list(kubelet.pods.values()):
            await kubelet.end(pod, 0)
        for job in jobs:
            await yard.reaches(job["metadata"]["name"], "Succeeded", job["kind"])
        for job in jobs:
            await yard.gone(job["metadata"]["name"], job["kind"])
        assert "forbidden" not in operator.log.lower()
