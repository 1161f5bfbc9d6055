"""Real kubectl against the embedded API server: the oldest and the newest that is installed."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.embedded.kubectl import JOB, JOBS, Cluster, eventually, running_pod
from trainyard.embedded.cluster_objects import Deletion


async def test_jobs_are_applied_listed_changed_and_deleted(cluster: Cluster) -> None:
    assert "digits created" in await cluster("apply", "-f", "-", stdin=JOB)
    await cluster.set_status("digits", phase="Running", aggregate={"running": 2}, backoffCount=1)
    header, row = (await cluster("get", "pj")).splitlines()
    assert header.split() == ["NAME", "PHASE", "RUNNING", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["digits", "Running", "2", "1"]
    assert "digits unchanged" in await cluster("apply", "-f", "-", stdin=JOB)
    labelled = JOB.replace("name: digits", "name: digits\n  labels: {team: blue}")
    assert "digits configured" in await cluster("apply", "-f", "-", stdin=labelled)
    assert "digits" in await cluster("get", "pj", "-l", "team=blue", "-o", "name")
    await cluster("delete", "pj", "digits")
    assert cluster.registry.list(JOBS) == []


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("yaml", "kind: PyTorchTrainingJob"),
        ("json", '"kind": "PyTorchTrainingJob"'),
        ("name", "pytorchtrainingjob.batch.tensorstack.dev/digits"),
        ("jsonpath={.spec.replicaSpecs[0].replicas}", "2"),
        ("custom-columns=N:.metadata.name", "digits"),
        ("wide", "digits"),
    ],
)
async def test_output_formats(cluster: Cluster, output: str, expected: str) -> None:
    await cluster("apply", "-f", "-", stdin=JOB)
    assert expected in await cluster("get", "pj", "digits", "-o", output)


async def test_get_watch_shows_each_change(cluster: Cluster) -> None:
    await cluster("apply", "-f", "-", stdin=JOB)
    watching = await cluster.start("get", "pj", "-w", "--no-headers")
    assert watching.stdout is not None
    try:
        async with asyncio.timeout(120):
            assert (await watching.stdout.readline()).startswith(b"digits")
            for phase in ("Pending", "Running", "Succeeded"):
                await cluster.set_status("digits", phase=phase)
                assert phase in (await watching.stdout.readline()).decode()
    finally:
        watching.kill()
        await watching.communicate()


async def test_wait_returns_once_the_condition_holds(cluster: Cluster) -> None:
    await cluster("apply", "-f", "-", stdin=JOB)
    waiting = await cluster.start(
        "wait", "pj/digits", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s"
    )
    await cluster.set_status("digits", phase="Running")
    await cluster.set_status("digits", phase="Succeeded")
    async with asyncio.timeout(120):
        out, err = await waiting.communicate()
    assert waiting.returncode == 0, err.decode()
    assert b"condition met" in out


async def test_wait_for_delete(cluster: Cluster) -> None:
    await cluster("apply", "-f", "-", stdin=JOB)
    waiting = await cluster.start("wait", "pj/digits", "--for=delete", "--timeout=120s")
    await cluster.registry.delete(JOBS, "default", "digits")
    async with asyncio.timeout(120):
        await waiting.communicate()
    assert waiting.returncode == 0


async def test_describe_shows_the_events_of_the_object(cluster: Cluster) -> None:
    await cluster("apply", "-f", "-", stdin=JOB)
    job = cluster.registry.get(JOBS, "default", "digits")
    await cluster.registry.create(
        "events",
        {
            "metadata": {"name": "digits.1"},
            "involvedObject": {
                "kind": job["kind"],
                "apiVersion": job["apiVersion"],
                "namespace": "default",
                "name": "digits",
                "uid": job["metadata"]["uid"],
            },
            "type": "Normal",
            "reason": "Created",
            "message": "A PyTorchTrainingJob has been created: digits",
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "count": 1,
            "source": {"component": "trainyard"},
        },
    )
    described = await cluster("describe", "pj", "digits")
    assert "A PyTorchTrainingJob has been created: digits" in described
    assert "Replica Specs" in described
    assert "has been created" in await cluster("events")
    assert "pytorchtrainingjob/digits" in await cluster("get", "events")


@pytest.mark.parametrize(
    ("kind", "patch", "resource"),
    [
        ("merge", '{"metadata":{"labels":{"a":"b"}}}', "pj/digits"),
        ("json", '[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]', "pj/digits"),
        ("strategic", '{"metadata":{"labels":{"a":"b"}}}', "cm/settings"),
    ],
)
async def test_patch(cluster: Cluster, kind: str, patch: str, resource: str) -> None:
    await cluster("apply", "-f", "-", stdin=JOB)
    await cluster("create", "configmap", "settings", "--from-literal=x=1")
    await cluster("patch", resource, "--type", kind, "-p", patch)
    assert await cluster("get", resource, "-o", "jsonpath={.metadata.labels.a}") == "b"


async def test_label_annotate_and_selectors(cluster: Cluster) -> None:
    for name in ("a", "b", "c"):
        await cluster("create", "configmap", name, "--from-literal=x=1")
    await cluster("label", "cm", "a", "b", "tier=gold")
    await cluster("annotate", "cm", "a", "note=first one")
    assert (await cluster("get", "cm", "-l", "tier in (gold,silver)", "-o", "name")).split() == [
        "configmap/a",
        "configmap/b",
    ]
    assert (await cluster("get", "cm", "-l", "!tier", "-o", "name")).split() == ["configmap/c"]
    found = await cluster("get", "cm", "--field-selector", "metadata.name=b", "-o", "name")
    assert found.split() == ["configmap/b"]


async def test_edit_replaces_what_the_editor_saved(cluster: Cluster) -> None:
    await cluster("create", "configmap", "settings", "--from-literal=x=before")
    editor = cluster.folder / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/before/after/ "$1"\n')
    editor.chmod(0o755)
    cluster.environment["EDITOR"] = str(editor)
    await cluster("edit", "cm", "settings")
    assert cluster.registry.get("configmaps", "default", "settings")["data"] == {"x": "after"}


async def test_pages_make_the_whole_list(cluster: Cluster) -> None:
    for number in range(7):
        await cluster.registry.create("configmaps", {"metadata": {"name": f"c{number}"}})
    names = (await cluster("get", "cm", "--chunk-size=2", "-o", "name")).split()
    assert names == [f"configmap/c{number}" for number in range(7)]


async def test_namespaces_hold_objects_and_take_them_along(cluster: Cluster) -> None:
    await cluster("create", "ns", "team")
    await cluster("-n", "team", "apply", "-f", "-", stdin=JOB)
    assert "digits" in await cluster("get", "pj", "-A")
    await cluster("delete", "ns", "team")
    assert cluster.registry.list(JOBS) == []
    assert "not found" in await cluster("get", "ns", "team", fails=True)


async def test_create_and_read_secrets_and_config_maps(cluster: Cluster) -> None:
    await cluster("create", "secret", "generic", "keys", "--from-literal=k=geheim")
    assert await cluster("get", "secret", "keys", "-o", "jsonpath={.data.k}") == "Z2VoZWlt"
    rows = (await cluster("get", "secret")).splitlines()
    assert rows[1].split()[:3] == ["keys", "Opaque", "1"]
    assert "already exists" in await cluster(
        "create", "secret", "generic", "keys", "--from-literal=k=v", fails=True
    )


async def test_pods_show_state_and_logs(cluster: Cluster) -> None:
    await running_pod(cluster)
    row = (await cluster("get", "pods", "-o", "wide")).splitlines()[1].split()
    assert row[:4] == ["p", "1/1", "Running", "1"]
    assert {"10.0.0.7", "here"} <= set(row)
    assert await cluster("logs", "p") == "one\ntwo\nthree"
    assert await cluster("logs", "p", "--tail=1") == "three"
    assert await cluster("logs", "p", "--since=1h") == "three"
    assert await cluster("logs", "p", "--previous") == "earlier life"
    assert (await cluster("logs", "p", "--timestamps")).startswith("2026-01-01T00:00:00Z one")
    assert "one" in await cluster("logs", "-l", "app=x")
    assert "Containers:" in await cluster("describe", "pod", "p")


async def test_logs_are_followed_until_the_container_ends(cluster: Cluster) -> None:
    await running_pod(cluster)
    following = await cluster.start("logs", "-f", "p")
    assert following.stdout is not None
    async with asyncio.timeout(120):
        for expected in (b"one\n", b"two\n", b"three\n"):
            assert await following.stdout.readline() == expected
        cluster.runtime.ended.set()
        rest, _ = await following.communicate()
    assert rest == b"last\n"
    assert following.returncode == 0


async def test_logs_say_which_containers_there_are(cluster: Cluster) -> None:
    await running_pod(cluster, "p", "first", "second")
    assert await cluster("logs", "p", "-c", "second") == "one\ntwo\nthree"
    assert "nope is not valid" in await cluster("logs", "p", "-c", "nope", fails=True)


async def test_a_bound_pod_is_deleted_when_the_node_lets_go(cluster: Cluster) -> None:
    await running_pod(cluster)
    deleting = await cluster.start("delete", "pod", "p", "--grace-period=5")
    changes = cluster.registry.subscribe("pods")
    async with asyncio.timeout(120):
        async for event in changes:
            if event.object["metadata"].get("deletionTimestamp"):
                break
        assert event.object["metadata"]["deletionGracePeriodSeconds"] == 5
        assert "Terminating" in await cluster("get", "pods")
        await cluster.registry.delete("pods", "default", "p", Deletion(grace_seconds=0))
        await deleting.communicate()
    assert deleting.returncode == 0


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
async def test_delete_cascades_as_asked(cluster: Cluster, cascade: str) -> None:
    await cluster("apply", "-f", "-", stdin=JOB)
    job = cluster.registry.get(JOBS, "default", "digits")
    reference = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": "digits",
        "uid": job["metadata"]["uid"],
        "blockOwnerDeletion": True,
    }
    child = {"metadata": {"name": "child", "ownerReferences": [reference]}}
    await cluster.registry.create("configmaps", child)
    await cluster("delete", "pj", "digits", f"--cascade={cascade}")

    def left() -> bool:
        return bool(cluster.registry.list("configmaps"))

    if cascade == "foreground":
        assert not left()
    elif cascade == "orphan":
        kept = cluster.registry.get("configmaps", "default", "child")
        assert "ownerReferences" not in kept["metadata"]
    else:
        await eventually(cluster.registry, lambda: not left())


async def test_discovery_and_rights(cluster: Cluster) -> None:
    resources = await cluster("api-resources", "--verbs=list", "-o", "name")
    assert {"pods", JOBS, "queues.scheduler.tensorstack.dev"} <= set(resources.split())
    assert "batch.tensorstack.dev/v1beta1" in await cluster("api-versions")
    assert "yes" in await cluster("auth", "can-i", "create", "pods")
    version = json.loads(await cluster("version", "-o", "json"))
    assert version["serverVersion"]["major"] == "1"
    assert await cluster("get", "--raw", "/readyz") == "ok"


async def test_definitions_are_there_and_explained(cluster: Cluster) -> None:
    assert JOBS in await cluster("get", "crds", "-o", "name")
    await cluster("wait", "--for=condition=Established", f"crd/{JOBS}", "--timeout=120s")
    explained = await cluster("explain", "pj.spec.torchrunConfig")
    assert "rdzvBackend" in explained
    assert "FIELD" in explained
    assert "terminationGracePeriodSeconds" in await cluster("explain", "pod.spec")
    assert "mountPath" in await cluster("explain", "pods.spec.containers.volumeMounts")


async def test_dry_run_and_diff_change_nothing(cluster: Cluster) -> None:
    await cluster("apply", "-f", "-", "--dry-run=server", stdin=JOB)
    assert cluster.registry.list(JOBS) == []
    await cluster("apply", "-f", "-", stdin=JOB)
    labelled = JOB.replace("name: digits", "name: digits\n  labels: {team: blue}")
    process = await cluster.start("diff", "-f", "-", stdin=labelled.encode())
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert process.returncode == 1, err.decode()
    assert b"+    team: blue" in out
    assert "labels" not in cluster.registry.get(JOBS, "default", "digits")["metadata"]


async def test_server_side_apply_owns_fields_and_reports_conflicts(cluster: Cluster) -> None:
    def settings(value: str) -> str:
        return (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"
            f"data: {{mine: '{value}'}}\n"
        )

    apply = ("apply", "--server-side", "-f", "-")
    await cluster(*apply, "--field-manager=one", stdin=settings("1"))
    await cluster("patch", "cm", "settings", "-p", '{"data":{"other":"x"}}')
    await cluster(*apply, "--field-manager=one", stdin=settings("2"))
    stored = cluster.registry.get("configmaps", "default", "settings")
    assert stored["data"] == {"mine": "2", "other": "x"}
    refused = await cluster(*apply, "--field-manager=two", stdin=settings("3"), fails=True)
    assert "conflict" in refused
    assert ".data.mine" in refused
    await cluster(*apply, "--field-manager=two", "--force-conflicts", stdin=settings("3"))
    empty = settings("3").replace("data: {mine: '3'}\n", "")
    await cluster(*apply, "--field-manager=two", stdin=empty)
    assert cluster.registry.get("configmaps", "default", "settings")["data"] == {"other": "x"}


async def test_server_side_apply_after_client_side_apply(cluster: Cluster) -> None:
    await cluster("apply", "-f", "-", stdin=JOB)
    labelled = JOB.replace("name: digits", "name: digits\n  labels: {team: blue}")
    await cluster("apply", "--server-side", "-f", "-", stdin=labelled)
    job = cluster.registry.get(JOBS, "default", "digits")
    assert job["metadata"]["labels"] == {"team": "blue"}
    assert job["spec"]["replicaSpecs"][0]["replicas"] == 2


async def test_an_error_names_what_is_wrong(cluster: Cluster) -> None:
    assert "not found" in await cluster("get", "pj", "nope", fails=True)
    bad = JOB.replace("name: digits", "name: Digits_1")
    assert "metadata.name" in await cluster("apply", "-f", "-", stdin=bad, fails=True)
    assert "not found" in await cluster("-n", "nowhere", "apply", "-f", "-", stdin=JOB, fails=True)


async def test_a_wrong_token_is_refused(cluster: Cluster) -> None:
    refused = await cluster("--token=wrong", "get", "pods", fails=True)
    assert "Unauthorized" in refused or "must be logged in" in refused or "credentials" in refused


async def test_top_tells_what_pods_and_nodes_use(cluster: Cluster) -> None:
    for name in ("busy", "idle"):
        await running_pod(cluster, name, "main", "side")
    cluster.runtime.running = [cluster.registry.get("pods", "default", "busy")["metadata"]["uid"]]
    capacity = {"cpu": "5", "memory": "8Gi"}
    node = {"metadata": {"name": "here"}, "status": {"capacity": capacity, "allocatable": capacity}}
    await cluster.registry.create("nodes", node)
    table = [line.split() for line in (await cluster("top", "pods", "--containers")).splitlines()]
    assert table[1:] == [["busy", "main", "1500m", "200Mi"], ["busy", "side", "250m", "8Mi"]]
    assert (await cluster("top", "pod", "busy", "--no-headers")).split() == [
        "busy",
        "1750m",
        "208Mi",
    ]
    assert "208Mi" in await cluster("top", "pod", "-A", "-l", "app=x", "--sum")
    assert "No resources" in await cluster.warnings("top", "pod", "-l", "app=y")
    row = (await cluster("top", "nodes", "--no-headers")).split()
    assert row == ["here", "2500m", "50%", "4096Mi", "50%"]
    assert "not found" in await cluster("top", "pod", "nosuch", fails=True)
    assert "not found" in await cluster("top", "pod", "idle", fails=True)
    row = (await cluster("get", "podmetrics", "--no-headers")).split()
    assert row == ["busy", "1750m", "212992Ki", "2.000s"]
    told = json.loads(await cluster("get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes/here"))
    assert told["usage"]["nvidia.com/gpu"] == "1500m"
    assert told["usage"]["nvidia.com/gpu-memory"] == "3072Mi"
    assert told["window"] == "2.000s"
    for refused in (["delete", "podmetrics", "busy"], ["get", "podmetrics", "--watch-only"]):
        await cluster(*refused, fails=True)
    places = "pods/busy/log namespaces/default/nodes nosuch namespaces/default/pods/busy/status"
    for place in places.split():
        missing = f"/apis/metrics.k8s.io/v1beta1/{place}"
        assert "could not find" in await cluster("get", "--raw", missing, fails=True)
