"""Kinds of Kubernetes' own that nothing here acts on, as kubectl tells of them."""

from __future__ import annotations

import pytest

from tests.embedded.kubectl import Cluster

ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r}
rules: []
"""
REVIEW = """
apiVersion: authorization.k8s.io/v1
kind: SubjectAccessReview
spec: {user: u}
"""
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME, labels: {app: digits}}
"""


@pytest.mark.parametrize(
    ("command", "kind", "instead"),
    [
        (
            ("create", "deployment", "d", "--image", "i"),
            "Deployment (apps/v1)",
            "a job of batch.tensorstack.dev",
        ),
        (
            ("create", "job", "j", "--image", "i"),
            "Job (batch/v1)",
            "a job of batch.tensorstack.dev",
        ),
        (("create", "quota", "q"), "ResourceQuota (v1)", "a Queue"),
        (
            ("create", "priorityclass", "p", "--value=1"),
            "PriorityClass (scheduling.k8s.io/v1)",
            "the Queue and the PodGroup",
        ),
        (
            ("create", "pdb", "p", "--selector=app=x", "--min-available=1"),
            "PodDisruptionBudget (policy/v1)",
            "leave it out",
        ),
    ],
)
async def test_one_is_refused_by_its_name_with_what_to_do_instead(
    cluster: Cluster, command: tuple[str, ...], kind: str, instead: str
) -> None:
    said = await cluster(*command, fails=True)
    assert kind in said
    assert instead in said


async def test_a_review_of_others_is_refused_with_that_of_oneself(cluster: Cluster) -> None:
    said = await cluster("create", "-f", "-", stdin=REVIEW, fails=True)
    assert "SubjectAccessReview (authorization.k8s.io/v1)" in said
    assert "SelfSubjectAccessReview" in said


async def test_a_manifest_of_one_is_refused_so_too(cluster: Cluster) -> None:
    said = await cluster("apply", "-f", "-", stdin=ROLE, fails=True)
    assert "Role (rbac.authorization.k8s.io/v1)" in said
    assert "leave it out" in said


async def test_there_are_none(cluster: Cluster) -> None:
    for kind in ("deployments", "csr", "pc", "csistoragecapacities"):
        assert await cluster("get", kind, "-o", "name") == ""


async def test_apply_prunes_what_is_no_longer_in_the_manifest(cluster: Cluster) -> None:
    prune = ("apply", "--prune", "-l", "app=digits", "-f", "-")
    first, second = (CONFIG.replace("NAME", name) for name in ("first", "second"))
    await cluster(*prune, stdin=f"{first}---{second}")
    assert "configmap/first pruned" in await cluster(*prune, stdin=second)
