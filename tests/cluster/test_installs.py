"""What the chart and the kustomize bases install, on a real control plane with RBAC: with just
those rights jobs of all kinds succeed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.kubelet import running_kubelet
from tests.cluster.test_manifests import JOBS, succeed
from tests.cluster.yard import Yard, until
from tests.helm import render
from tests.unit.deploy.test_kustomize import built, overlay
from tests.unit.kinds import manifests

Object = dict[str, Any]
ACCOUNT = "trainyard-operator"
_TOO_NEW = {
    "PodDisruptionBudget": (1, 21),
    "ValidatingAdmissionPolicy": (1, 30),
    "ValidatingAdmissionPolicyBinding": (1, 30),
    # With rules, which kubectl does not send to older ones; the test's cluster has its own.
    "CustomResourceDefinition": (1, 25),
}


def by_chart(yard: Yard, folder: Path, settings: Object) -> list[Object]:
    (made,) = render([{"image": {"repository": "none"}, "settings": settings}], yard.namespace)
    return made


def server(yard: Yard, each: Object) -> tuple[int, int]:
    """The version of what serves it."""
    is_policy = each["apiVersion"].startswith("admissionregistration.")
    return yard.plane.version if is_policy else yard.plane.core_version


def by_kustomize(yard: Yard, folder: Path, settings: Object) -> list[Object]:
    base = "namespaced" if settings else "cluster"
    return built(overlay(folder, base, namespace=yard.namespace))


@pytest.mark.parametrize("make", [by_chart, by_kustomize])
@pytest.mark.parametrize("scope", ["cluster", "namespaced"])
async def test_jobs_of_all_kinds_succeed_with_what_is_installed(
    scope: str, make: Callable[[Yard, Path, Object], list[Object]], yard: Yard, tmp_path: Path
) -> None:
    (folder := tmp_path / "overlay").mkdir()
    settings = {"namespaces": [yard.namespace]} if scope == "namespaced" else {}
    objects = [
        each
        for each in make(yard, folder, settings)
        if server(yard, each) >= _TOO_NEW.get(each["kind"], (0, 0)) and each["kind"] != "Namespace"
    ]
    clusterwide = {each["kind"] for each in objects if "namespace" not in each["metadata"]}
    if scope == "namespaced" and make is by_kustomize:
        assert clusterwide == set()
    await yard.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))
    await _runs(yard, everywhere=scope == "cluster")
    # What is installed goes as a whole, and takes the rights along.
    await yard.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(objects))
    account = f"--as=system:serviceaccount:{yard.namespace}:{ACCOUNT}"
    assert await yard.kubectl("auth", "can-i", "list", "pods", account, fails=True) == ""


async def _runs(yard: Yard, *, everywhere: bool) -> None:
    token = (await yard.kubectl("create", "token", ACCOUNT)).strip()
    config = yard.plane.write_kubeconfig(f"installed-{yard.namespace}", token)
    jobs = [manifests.changed(job, "metadata.name", job["kind"].lower()) for job in JOBS]
    options = ("--gang-scheduler", "t9k")
    async with (
        yard.operator(*options, kubeconfig=config, everywhere=everywhere) as operator,
        running_kubelet(yard.client, yard.namespace) as kubelet,
    ):
        await operator.leads()
        for job in jobs:
            await yard.kubectl("apply", "-f", "-", stdin=manifests.dump(job))
        for job in jobs:
            await yard.reaches(job["metadata"]["name"], "Running", job["kind"])
        await until(lambda: succeed(yard, kubelet, jobs), bool)
        assert await operator.answer("/readyz") == "leading"
        refused = [line for line in operator.log.splitlines() if "forbidden" in line.lower()]
        # Namespaces of earlier tests go with what is in them; and no Role can grant a view of
        # nodes: it is asked for once, in case somebody has.
        known = ("being terminated",) if everywhere else ("nodes is forbidden",)
        assert [line for line in refused if not any(text in line for text in known)] == []
        assert "no right" not in operator.log
