"""Admission policies on a server that has them (1.30 and newer): no template of a job changes."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.cluster.test_manifests import printed
from tests.cluster.yard import PYTORCH, Yard, pytorch_job, until
from trainyard.kinds import immutability_policies
from trainyard.kube.errors import ApiError

POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"


@pytest.fixture
async def policed(yard: Yard) -> Yard:
    """A cluster with the policies of `trainyard manifests`."""
    if yard.plane.version < immutability_policies.SINCE:
        pytest.skip(f"not judged: no policies before {immutability_policies.SINCE}")
    await yard.kubectl("apply", "--server-side", "-f", "-", stdin=printed(yard))
    return yard


async def statuses(yard: Yard) -> dict[str, dict[str, Any]]:
    """Of our policies, by name."""
    listed = json.loads(await yard.kubectl("get", POLICIES, "-o", "json"))["items"]
    ours = {each["metadata"]["name"] for each in immutability_policies.policies()}
    return {
        each["metadata"]["name"]: each.get("status", {})
        for each in listed
        if each["metadata"]["name"] in ours
    }


async def test_the_types_in_every_policy_are_right(policed: Yard) -> None:
    """The server knows the definitions by then, and compares."""
    found = await until(
        lambda: statuses(policed),
        lambda found: all("observedGeneration" in status for status in found.values()),
    )
    assert [status["typeChecking"] for status in found.values()] == [{}] * 4


async def test_a_template_cannot_be_changed(policed: Yard) -> None:
    """The rules in the definitions cannot see into it; the policy can."""
    await policed.kubectl("apply", "-f", "-", stdin=json.dumps(pytorch_job("digits")))
    tags = itertools.count()

    async def change() -> str:
        """How it was refused; a policy is in force some moments after it was written."""
        job = await policed.job("digits")
        template = job["spec"]["replicaSpecs"][0]["template"]
        template["spec"]["containers"][0]["image"] = f"another:{next(tags)}"
        try:
            await policed.client.replace(PYTORCH, job)
        except ApiError as error:
            return str(error)
        return ""

    assert "spec.replicaSpecs cannot be changed after creation" in await until(change, bool)
    pause = json.dumps({"spec": {"runMode": {"pause": {"enabled": True}}}})
    await policed.kubectl("patch", "pj", "digits", "--type=merge", "-p", pause)
