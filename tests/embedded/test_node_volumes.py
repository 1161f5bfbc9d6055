"""Volumes and what a pod takes from its cluster, seen from inside the container."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.node_cluster import Cluster, cluster, eventually
from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.node.pod_runtime_process import start_pod_runtime
from trainyard.embedded.registry import Registry

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Cluster]:
    (tmp_path / "work").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "set.csv").write_text("1,2\n")
    async with cluster(
        tmp_path / "state",
        working_dir=str(tmp_path / "work"),
        volumes={"data": str(tmp_path / "data")},
    ) as running:
        yield running


def mounting(source: dict, path: str = "/there/it/is", **mount: object) -> dict:
    return {
        "container": {"volumeMounts": [{"name": "v", "mountPath": path, **mount}]},
        "volumes": [{"name": "v", **source}],
    }


async def test_an_empty_dir_is_shared_by_containers_and_gone_with_the_pod(node: Cluster) -> None:
    mounts = [{"name": "v", "mountPath": "/v"}]
    init = {"name": "init", "command": ["sh", "-c", "echo x > /v/x"], "volumeMounts": mounts}
    spec = mounting({"emptyDir": {}}, "/v")
    text = await node.shell("job-0", "cat /v/x", initContainers=[init], **spec)
    assert text == "x\n"
    assert not list(node.state_dir.glob("pods/*/volumes"))
    assert not Path("/v").exists()


async def test_a_memory_volume_is_a_tmpfs_with_the_limit_also_at_dev_shm(node: Cluster) -> None:
    spec = mounting({"emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}}, "/dev/shm")
    script = "stat -f -c '%T %b %S' /dev/shm; head -c 9M /dev/zero > /dev/shm/big || echo full"
    text = await node.shell("job-0", f"({script}) 2>/dev/null", **spec)
    kind, blocks, size = text.splitlines()[0].split()
    assert (kind, int(blocks) * int(size)) == ("tmpfs", 8 << 20)
    assert text.endswith("full\n")


async def test_a_memory_volume_outlives_a_container(node: Cluster) -> None:
    spec = mounting({"emptyDir": {"medium": "Memory"}}, "/v")
    script = "test -e /v/seen && exit 0; touch /v/seen; exit 1"
    pod = await node.run("job-0", ["sh", "-c", script], restartPolicy="OnFailure", **spec)
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1


async def test_config_maps_and_secrets_as_files_with_modes_items_and_sub_path(
    node: Cluster,
) -> None:
    data = {"metadata": {"name": "c"}, "data": {"a.txt": "A", "b.txt": "B"}}
    await node.registry.create("configmaps", data)
    secret = {"metadata": {"name": "s"}, "data": {"key": base64.b64encode(b"S").decode()}}
    await node.registry.create("secrets", secret)
    spec = {
        "container": {
            "volumeMounts": [
                {"name": "c", "mountPath": "/c", "readOnly": True},
                {"name": "c", "mountPath": "/etc/one.txt", "subPath": "a.txt"},
                {"name": "s", "mountPath": "/s"},
            ]
        },
        "volumes": [
            {
                "name": "c",
                "configMap": {"name": "c", "items": [{"key": "a.txt", "path": "a.txt"}]},
            },
            {"name": "s", "secret": {"secretName": "s", "defaultMode": 0o400}},
        ],
    }
    script = "ls /c; cat /c/a.txt /etc/one.txt /s/key; stat -c %a /s/key; touch /c/x || echo ro"
    text = await node.shell("job-0", f"({script}) 2>/dev/null", **spec)
    assert text == "a.txt\nAAS400\nro\n"


async def test_a_pod_waits_for_a_config_map_that_comes_later(node: Cluster) -> None:
    spec = mounting({"configMap": {"name": "late"}}, "/c")
    await node.create("job-0", ["cat", "/c/key"], **spec)
    pod = await node.until("job-0", lambda pod: bool(pod["status"].get("containerStatuses")))
    waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting["message"] == "ConfigMap default/late, which a volume needs, does not exist"
    await node.registry.create("configmaps", {"metadata": {"name": "late"}, "data": {"key": "v"}})
    await node.phase("job-0", "Succeeded")
    assert await node.log("job-0") == "v"
    assert node.events("FailedMount") == [waiting["message"]]


async def test_downward_api_and_projected_files(node: Cluster) -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {
            "path": "cpu",
            "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"},
        },
    ]
    spec = mounting({"projected": {"sources": [{"downwardAPI": {"items": items}}]}}, "/d")
    spec["container"]["resources"] = {"limits": {"cpu": "1500m"}}
    text = await node.shell(
        "job-0", "cat /d/labels; echo; cat /d/cpu", metadata={"labels": {"a": "b"}}, **spec
    )
    assert text == 'a="b"\n2'


async def test_a_mapped_claim_is_the_folder_and_writes_stay(node: Cluster, tmp_path: Path) -> None:
    spec = mounting({"persistentVolumeClaim": {"claimName": "data"}})
    text = await node.shell("job-0", "cd /there/it/is; cat set.csv; echo out > out", **spec)
    assert text == "1,2\n"
    assert (tmp_path / "data" / "out").read_text() == "out\n"
    assert not Path("/there").exists()


async def test_an_unmapped_claim_is_kept_and_warned_about_once(node: Cluster) -> None:
    spec = mounting({"persistentVolumeClaim": {"claimName": "mine"}}, "/v")
    await node.shell("job-0", "echo kept > /v/file", **spec)
    assert await node.shell("job-1", "cat /v/file", **spec) == "kept\n"
    (warning,) = node.events("EmptyClaim")
    assert warning.endswith("--volume mine=DIR")


async def test_a_claims_folder_that_is_made_is_writable_for_whom_the_pod_runs_as(
    node: Cluster,
) -> None:
    for number, context in enumerate(
        (
            {"runAsUser": 4242},
            {"runAsUser": 4242, "fsGroup": 4300},
            {"fsGroup": 4300},
        )
    ):
        spec = mounting({"persistentVolumeClaim": {"claimName": f"made-{number}"}}, "/v")
        spec["container"]["workingDir"] = "/"
        script = "echo kept > /v/file && stat -c '%u %g' /v/file"
        text = await node.shell(f"job-{number}", script, securityContext=context, **spec)
        user, group = context.get("runAsUser", 0), context.get("fsGroup")
        assert text == f"{user} {user if group is None else group}\n"
    spec = mounting({"persistentVolumeClaim": {"claimName": "made-2"}}, "/v")
    other = {"runAsUser": 4243, "supplementalGroups": [4300]}
    spec["container"]["workingDir"] = "/"
    assert await node.shell(
        "job-9", "echo mine > /v/mine; ls /v", securityContext=other, **spec
    ) == ("file\nmine\n")


async def test_a_host_path_read_only_and_one_that_is_missing(node: Cluster, tmp_path: Path) -> None:
    spec = mounting({"hostPath": {"path": str(tmp_path / "data")}}, "/v", readOnly=True)
    script = "(touch /v/x || echo refused) 2>/dev/null"
    assert await node.shell("job-0", script, **spec) == "refused\n"
    await node.create("job-1", ["true"], **mounting({"hostPath": {"path": "/no/such"}}))
    await node.until("job-1", lambda _: bool(node.events("FailedMount")))
    assert node.events("FailedMount") == ["volume 'v': hostPath /no/such does not exist"]


async def test_a_volume_of_a_cluster_only_is_an_empty_folder_with_a_warning(
    node: Cluster,
) -> None:
    spec = mounting({"nfs": {"server": "s", "path": "/p"}}, "/v")
    assert await node.shell("job-0", "ls /v", **spec) == ""
    assert "'v' (nfs) cannot be had on this machine" in node.events("UnsupportedVolume")[0]


async def test_environment_from_every_source(node: Cluster) -> None:
    await node.registry.create("configmaps", {"metadata": {"name": "c"}, "data": {"A": "a"}})
    secret = {"metadata": {"name": "s"}, "data": {"B": base64.b64encode(b"b").decode()}}
    await node.registry.create("secrets", secret)
    env = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "B"}}},
        {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "A"}}},
        {
            "name": "NO",
            "valueFrom": {"configMapKeyRef": {"name": "no", "key": "A", "optional": True}},
        },
        {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
        {"name": "ALL", "value": "$(NAME)-$(P_A)"},
    ]
    pod = await node.run(
        "job-0",
        ["sh", "-c", "echo $NAME $IP $KEY $MAP ${NO-unset} $MEM $ALL"],
        container={
            "env": env,
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c"}}],
            "resources": {"limits": {"memory": "64Mi"}},
        },
    )
    address = pod["status"]["podIP"]
    assert await node.log("job-0") == f"job-0 {address} b a unset 67108864 job-0-a\n"


async def test_a_missing_secret_key_is_named(node: Cluster) -> None:
    env = [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    await node.create("job-0", ["true"], container={"env": env})
    pod = await node.until("job-0", lambda pod: bool(pod["status"].get("containerStatuses")))
    waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] == "CreateContainerConfigError"
    assert waiting["message"] == "Secret default/s does not exist"


async def test_an_image_pattern_stands_for_a_virtual_environment(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    tool = venv / "bin" / "tool"
    tool.write_text("#!/bin/sh\necho the tool of $VIRTUAL_ENV\n")
    tool.chmod(0o755)
    images = (("registry.example/torch*", str(venv)),)
    async with cluster(tmp_path / "state", images=images) as node:
        container = {"image": "registry.example/torch:2"}
        text = await node.shell("job-0", "tool", container=container)
    assert text == f"the tool of {venv}\n"


async def test_a_working_folder_inside_a_volume_is_the_volumes(
    node: Cluster, tmp_path: Path
) -> None:
    """Also when the host has a folder of that name: the volume's content is what counts."""
    (tmp_path / "data" / "inner").mkdir()
    host = tmp_path / "host" / "inner"
    host.mkdir(parents=True)
    spec = mounting({"persistentVolumeClaim": {"claimName": "data"}}, str(host.parent))
    spec["container"]["workingDir"] = str(host)
    await node.shell("job-0", "echo x > file", **spec)
    assert (tmp_path / "data" / "inner" / "file").exists()
    assert not list(host.iterdir())


async def test_a_mount_point_made_in_the_working_folder_is_told(
    node: Cluster, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    spec = mounting({"emptyDir": {}}, str(home / "scratch"))
    metadata = {"annotations": {"trainyard.dev/working-dir": str(home)}}
    await node.shell("job-0", "echo x > scratch/file", metadata=metadata, **spec)
    assert node.events("FolderMade") == [
        f"{home}/scratch lies in the working folder and did not exist: it is made there, empty"
    ]
    assert list((home / "scratch").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="another group takes root")
async def test_an_empty_folder_has_the_group_of_the_pod(tmp_path: Path) -> None:
    async with cluster(tmp_path / "s") as node:
        text = await node.shell(
            "one",
            "touch /e/new; stat -c '%g %a' /e; stat -c %g /e/new",
            container={"volumeMounts": [{"name": "e", "mountPath": "/e"}]},
            volumes=[{"name": "e", "emptyDir": {}}],
            securityContext={"fsGroup": 4321},
        )
        assert text.split() == ["4321", "2777", "4321"]


async def test_files_follow_what_they_are_made_of(node: Cluster) -> None:
    maps = [{"metadata": {"name": name}, "data": {"a": "1", "b": "1"}} for name in ("kept", "gone")]
    for each in maps:
        await node.registry.create("configmaps", each)
    sources = [{"configMap": {"name": "kept"}}, {"downwardAPI": {"items": [_LABELS]}}]
    mounts = [{"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": "/w"}]
    changed = "grep -q new /v/labels && [ ! -e /v/b ]"
    script = f"until {changed}; do sleep 0.05; done; cat /v/a; ls /v; cat /w/b"
    await node.create(
        "job-0",
        ["sh", "-c", script],
        container={"volumeMounts": mounts},
        volumes=[
            {"name": "w", "configMap": {"name": "gone"}},
            {"name": "v", "projected": {"sources": sources}},
        ],
    )
    await node.phase("job-0", "Running")
    await node.registry.delete("configmaps", "default", "gone")
    await node.registry.update("configmaps", "default", "kept", _with_another_value)
    await node.registry.update("pods", "default", "job-0", _with_a_label)
    await node.phase("job-0", "Succeeded")
    assert await node.log("job-0") == "2a\nlabels\n1"


async def test_files_are_kept_in_memory_and_go_with_their_pod(node: Cluster) -> None:
    """Decision 348."""
    await node.registry.create("secrets", {"metadata": {"name": "s"}, "stringData": {"key": "S"}})
    spec = mounting({"secret": {"secretName": "s"}}, "/v")
    files = "/v /etc/hosts /etc/hostname /etc/resolv.conf"
    script = f"stat -f -c %T {files}; cat /v/key; until [ -e end ]; do sleep 0.01; done"
    await node.create("job-0", ["sh", "-c", script], **spec)
    await node.printed("job-0")
    await eventually(lambda: node.memory() != [])
    assert list((node.state_dir / "memory").iterdir()) == []  # mounted for the pods alone
    assert not list(node.state_dir.rglob("key"))
    (node.state_dir.parent / "work" / "end").touch()
    await node.phase("job-0", "Succeeded")
    assert await node.log("job-0") == "tmpfs\n" * 4 + "S"
    await eventually(lambda: node.memory() == [])


async def test_an_agent_that_takes_over_goes_on_with_the_files(tmp_path: Path) -> None:
    state = tmp_path / "state"
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    await registry.create("configmaps", {"metadata": {"name": "kept"}, "data": {"a": "1"}})
    spec = mounting({"configMap": {"name": "kept"}}, "/v")
    handle = start_pod_runtime(state, die_with_parent=False)
    async with cluster(state, handle=handle, registry=registry, shut_down=False) as node:
        script = "until grep -q 2 /v/a; do sleep 0.05; done; cat /v/a"
        await node.create("job-0", ["sh", "-c", script], **spec)
        await node.create("ends-meanwhile", ["sleep", "1000"], **spec)
        for name in ("job-0", "ends-meanwhile"):
            await node.phase(name, "Running")
        assert len(node.memory()) == 2
    await registry.delete("pods", "default", "ends-meanwhile", Deletion(grace_seconds=0))
    await registry.update("configmaps", "default", "kept", _with_another_value)
    handle = start_pod_runtime(state, die_with_parent=False)
    assert handle.adopted
    async with cluster(state, handle=handle, registry=registry) as node:
        await eventually(lambda: len(node.memory()) < 2)
        await node.phase("job-0", "Succeeded")
        assert await node.log("job-0") == "2"
        await eventually(lambda: node.memory() == [])
    await registry.close()


async def test_what_is_left_of_a_pod_is_what_it_wrote_and_said(node: Cluster) -> None:
    """An empty /tmp is left to go with the logs, one with something in it is not."""
    said = {"container": {"terminationMessagePath": "/dev/termination-log"}}
    await node.shell("wrote", "echo x > /tmp/x; echo why > /dev/termination-log", **said)
    pod = await node.phase("wrote", "Succeeded")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["message"] == "why\n"
    (folder,) = node.state_dir.glob("pods/*_wrote_*")
    await eventually(lambda: not list(folder.rglob("x")))
    await eventually(lambda: not list(folder.rglob("termination-log")))
    assert sorted(each.name for each in (folder / "main").iterdir()) == ["0.exit", "0.log"]


_LABELS = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}


def _with_another_value(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "data": {"a": "2"}}


def _with_a_label(pod: dict[str, Any]) -> dict[str, Any]:
    return {**pod, "metadata": {**pod["metadata"], "labels": {"is": "new"}}}
