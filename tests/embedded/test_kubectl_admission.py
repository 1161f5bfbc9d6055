"""What kubectl is told about manifests that break a rule, and which changes it may make."""

from __future__ import annotations

import pytest

from tests.embedded.kubectl import JOB, JOBS, Cluster

ELASTIC = JOB.replace(
    "  replicaSpecs:",
    "  torchrunConfig: {enabled: true}\n"
    "  elastic: {enabled: true, minReplicas: 1, maxReplicas: 4, expectedReplicas: 2}\n"
    "  replicaSpecs:",
).replace('command: ["true"]', 'args: ["train.py"]')


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        ("replicas: 2", "replica: 2", ["spec.replicaSpecs[0].replica", "replicas"]),
        ("command:", "commands:", ["commands", "command"]),
        ("replicas: 2", "replicas: many", ["spec.replicaSpecs[0].replicas", "many"]),
        ("replicas: 2", "replicas: -1", ["spec.replicaSpecs[0].replicas"]),
    ],
    ids=["unknown field", "unknown container field", "wrong type", "negative"],
)
async def test_a_wrong_manifest_is_refused_with_path_and_suggestion(
    cluster: Cluster, right: str, wrong: str, expected: list[str]
) -> None:
    refused = await cluster("apply", "-f", "-", stdin=JOB.replace(right, wrong), fails=True)
    for text in expected:
        assert text in refused
    assert cluster.registry.list(JOBS) == []


async def test_warn_drops_unknown_fields_and_says_so(cluster: Cluster) -> None:
    job = JOB.replace("spec:\n  replicaSpecs", "spec:\n  nonsense: 1\n  replicaSpecs")
    told = await cluster.warnings("create", "--validate=warn", "-f", "-", stdin=job)
    assert 'unknown field "spec.nonsense"' in told
    assert "nonsense" not in cluster.registry.get(JOBS, "default", "digits")["spec"]


async def test_ignore_drops_unknown_fields_silently(cluster: Cluster) -> None:
    job = JOB.replace("spec:\n  replicaSpecs", "spec:\n  nonsense: 1\n  replicaSpecs")
    assert "nonsense" not in await cluster.warnings(
        "create", "--validate=ignore", "-f", "-", stdin=job
    )
    assert "nonsense" not in cluster.registry.get(JOBS, "default", "digits")["spec"]


async def test_an_old_spelling_is_normalised_with_a_warning_and_can_be_resumed(
    cluster: Cluster,
) -> None:
    paused = JOB.replace("  replicaSpecs:", "  runMode: {pause: {enable: true}}\n  replicaSpecs:")
    told = await cluster.warnings("apply", "-f", "-", stdin=paused)
    assert "enable" in told
    stored = cluster.registry.get(JOBS, "default", "digits")
    assert stored["spec"]["runMode"]["pause"] == {"enabled": True}
    await cluster("apply", "-f", "-", stdin=paused.replace("enable: true", "enable: false"))
    stored = cluster.registry.get(JOBS, "default", "digits")
    assert stored["spec"]["runMode"]["pause"] == {"enabled": False}


@pytest.mark.parametrize("way", ["apply", "patch", "edit"])
async def test_what_is_fixed_after_creation_is_refused_with_its_path(
    cluster: Cluster, way: str
) -> None:
    await cluster("apply", "-f", "-", stdin=JOB)
    if way == "apply":
        changed = JOB.replace("replicas: 2", "replicas: 3")
        told = await cluster("apply", "-f", "-", stdin=changed, fails=True)
    elif way == "patch":
        patch = '[{"op":"replace","path":"/spec/replicaSpecs/0/replicas","value":3}]'
        told = await cluster("patch", "pj", "digits", "--type=json", "-p", patch, fails=True)
    else:
        editor = cluster.folder / "editor"
        # kubectl opens the editor again, with the refusal; leaving the file unchanged gives up.
        editor.write_text('#!/bin/sh\ncp "$1" seen\nsed -i "s/replicas: 2/replicas: 3/" "$1"\n')
        editor.chmod(0o755)
        cluster.environment["EDITOR"] = str(editor)
        await cluster("edit", "pj", "digits", fails=True)
        told = (cluster.folder / "seen").read_text()
    assert "spec.replicaSpecs[0].replicas" in told
    stored = cluster.registry.get(JOBS, "default", "digits")
    assert stored["spec"]["replicaSpecs"][0]["replicas"] == 2


async def test_an_elastic_job_is_scaled_within_its_bounds(cluster: Cluster) -> None:
    await cluster("apply", "-f", "-", stdin=ELASTIC)
    await cluster("scale", "pj/digits", "--replicas=3")
    stored = cluster.registry.get(JOBS, "default", "digits")
    assert stored["spec"]["elastic"]["expectedReplicas"] == 3
    assert stored["metadata"]["generation"] == 2
    refused = await cluster("scale", "pj/digits", "--replicas=9", fails=True)
    assert "expectedReplicas" in refused


async def test_scaling_a_job_that_is_not_elastic_says_why(cluster: Cluster) -> None:
    await cluster("apply", "-f", "-", stdin=JOB)
    assert "not elastic" in await cluster("scale", "pj/digits", "--replicas=3", fails=True)


async def test_a_pod_is_checked_against_the_official_schema(cluster: Cluster) -> None:
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"
        "spec: {containers: [{name: main, image: x, commands: [a]}]}\n"
    )
    refused = await cluster("create", "-f", "-", stdin=pod, fails=True)
    assert "spec.containers[0].commands" in refused


async def test_an_invalid_stored_job_still_gets_a_status_and_can_be_deleted(
    cluster: Cluster,
) -> None:
    invalid = {"metadata": {"name": "broken", "finalizers": ["test/hold"]}, "spec": {"no": 1}}
    await cluster.registry.create(JOBS, invalid)
    await cluster("annotate", "pj", "broken", "seen=yes")
    patch = '{"metadata":{"finalizers":null}}'
    await cluster("delete", "pj", "broken", "--wait=false")
    await cluster("patch", "pj", "broken", "--type=merge", "-p", patch)
    assert cluster.registry.list(JOBS) == []
