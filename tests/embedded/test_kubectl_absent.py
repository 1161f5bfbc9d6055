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


@pytest.mark.parametrize(
    ("group", "kind", "spec", "instead"),
    [
        ("authentication.k8s.io", "TokenReview", "{token: t}", "SelfSubjectReview"),
        ("authorization.k8s.io", "SubjectAccessReview", "{user: u}", "SelfSubjectAccessReview"),
    ],
)
async def test_a_review_of_others_is_refused_with_that_of_oneself(
    cluster: Cluster, group: str, kind: str, spec: str, instead: str
) -> None:
    review = f"apiVersion: {group}/v1\nkind: {kind}\nspec: {spec}\n"
    said = await cluster("create", "-f", "-", stdin=review, fails=True)
    assert f"{kind} ({group}/v1)" in said
    assert instead in said


async def test_a_manifest_of_one_is_refused_so_too(cluster: Cluster) -> None:
    said = await cluster("apply", "-f", "-", stdin=ROLE, fails=True)
    assert "Role (rbac.authorization.k8s.io/v1)" in said
    assert "leave it out" in said


async def test_there_are_none(cluster: Cluster) -> None:
    assert await cluster("get", "deployments", "-o", "name") == ""


async def test_apply_prunes_what_is_no_longer_in_the_manifest(cluster: Cluster) -> None:
    prune = ("apply", "--prune", "-l", "app=digits", "-f", "-")
    first, second = (CONFIG.replace("NAME", name) for name in ("first", "second"))
    await cluster(*prune, stdin=f"{first}---{second}")
    assert "configmap/first pruned" in await cluster(*prune, stdin=second)
