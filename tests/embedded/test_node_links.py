"""Links that a pod may have left behind: what is mounted, made and written stays in its place."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.node_cluster import Cluster, cluster

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Cluster]:
    for name in ("work", "data", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / "secret").write_text("secret\n")
    async with cluster(
        tmp_path / "state",
        working_dir=str(tmp_path / "work"),
        volumes={"data": str(tmp_path / "data")},
    ) as running:
        yield running
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]


def mounting(*mounts: dict[str, Any], volumes: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    named = [{"name": "v", **mount} for mount in mounts]
    return {"container": {"volumeMounts": named}, "volumes": [CLAIM, *volumes]}


async def refusal(node: Cluster, name: str, **spec: Any) -> str:
    """Why the pod's container was not started."""
    pod = await node.run(name, ["true"], **spec)
    ended: dict[str, str] = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["reason"] == "ContainerCannotRun", ended
    return ended["message"]


@pytest.mark.parametrize("field", ["subPath", "subPathExpr"])
@pytest.mark.parametrize(
    ("link", "inner"),
    [
        ("{}/outside", "link"),
        ("../outside", "link"),
        ("{}/outside", "link/made"),
        ("../../../../../..", "link{}/outside/made"),
        ("/proc/self/root", "link{}/outside/made"),
    ],
    ids=["absolute", "relative", "below", "above", "magic"],
)
async def test_a_sub_path_through_a_link_does_not_leave_its_volume(
    node: Cluster, tmp_path: Path, link: str, inner: str, field: str
) -> None:
    (tmp_path / "data" / "link").symlink_to(link.format(tmp_path))
    spec = mounting({"mountPath": "/m", field: inner.format(tmp_path)})
    assert "a link on its way leads out of the volume" in await refusal(node, "job-0", **spec)


async def test_a_sub_path_through_a_link_within_the_volume_is_followed(
    node: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "data" / "runs" / "7").mkdir(parents=True)
    (tmp_path / "data" / "current").symlink_to("runs/7")
    spec = mounting({"mountPath": "/m", "subPath": "current/logs"})
    await node.shell("job-0", "echo x > /m/file", **spec)
    assert (tmp_path / "data" / "runs" / "7" / "logs" / "file").exists()


async def test_a_sub_path_is_made_for_whom_the_volume_is(node: Cluster, tmp_path: Path) -> None:
    os.chown(tmp_path / "data", 4242, 4242)
    spec = mounting({"mountPath": "/m", "subPath": "a/b"})
    spec["securityContext"] = {"runAsUser": 4242}
    spec["container"]["workingDir"] = "/"
    await node.shell("job-0", "echo x > /m/file", **spec)
    assert (tmp_path / "data" / "a" / "b" / "file").exists()


@pytest.mark.parametrize("link", ["{}/outside", "../../../../../../../..{}/outside"])
async def test_a_mount_point_below_a_link_is_made_in_the_pod(
    node: Cluster, tmp_path: Path, link: str
) -> None:
    (tmp_path / "data" / "link").symlink_to(link.format(tmp_path))
    mounts = {"mountPath": "/data"}, {"name": "e", "mountPath": "/data/link/made"}
    spec = mounting(*mounts, volumes=({"name": "e", "emptyDir": {}},))
    script = f"echo x > /data/link/made/file && cat {tmp_path}/outside/made/file"
    assert await node.shell("job-0", script, **spec) == "x\n"


async def test_a_working_folder_below_a_link_is_made_in_the_pod(
    node: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "data" / "link").symlink_to(tmp_path / "outside")
    spec = mounting({"mountPath": "/data"})
    spec["container"]["workingDir"] = "/data/link/made"
    assert await node.shell("job-0", "pwd -P; touch x", **spec) == f"{tmp_path}/outside/made\n"


async def test_a_link_in_the_working_folder_opens_no_other_to_writes(
    node: Cluster, tmp_path: Path
) -> None:
    """Also not as a ``workingDir``, which a pod before may have put a link in the place of."""
    (tmp_path / "work" / "src").symlink_to(tmp_path / "outside")
    spec = mounting({"mountPath": "/m"})
    spec["container"]["workingDir"] = str(tmp_path / "work" / "src")
    assert await node.shell("job-0", "touch made; cat secret", **spec) == "secret\n"


async def test_a_working_folder_outside_that_a_link_leads_to_is_told(
    node: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to("outside")
    container = {"workingDir": f"{tmp_path}/link"}
    await node.shell("job-0", "touch made", container=container)
    (text,) = node.events("NotHonoured")
    assert text.startswith(f"workingDir {tmp_path}/link is reached by a link")


async def test_a_claims_folder_that_was_replaced_by_a_link_is_refused(
    node: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "data").rmdir()
    (tmp_path / "data").symlink_to("outside")
    text = await refusal(node, "job-0", **mounting({"mountPath": "/m"}))
    assert text == (
        f"cannot mount {tmp_path}/data at /m: there is a link on its way, which is not followed "
        "here"
    )


async def test_a_pods_end_deletes_links_and_not_what_they_lead_to(
    node: Cluster, tmp_path: Path
) -> None:
    volume = {"name": "e", "emptyDir": {}}
    spec = mounting({"name": "e", "mountPath": "/e"}, volumes=(volume,))
    await node.shell("job-0", f"ln -s {tmp_path}/outside /e/link; ln -s / /e/root", **spec)
    assert not list(node.state_dir.glob("pods/*/volumes"))
    assert (tmp_path / "outside" / "secret").exists()


@pytest.mark.parametrize("kind", ["configMap", "secret", "downwardAPI", "projected"])
async def test_volumes_of_configuration_are_read_only(node: Cluster, kind: str) -> None:
    """https://kubernetes.io/docs/concepts/storage/volumes/: since 1.9.6, whatever readOnly says."""
    for resource, value in (("configmaps", "K"), ("secrets", "Sw==")):
        await node.registry.create(resource, {"metadata": {"name": "c"}, "data": {"key": value}})
    labels = {"items": [{"path": "key", "fieldRef": {"fieldPath": "metadata.name"}}]}
    source = {
        "configMap": {"name": "c"},
        "secret": {"secretName": "c"},
        "downwardAPI": labels,
        "projected": {"sources": [{"secret": {"name": "c"}}]},
    }[kind]
    mounts = {"mountPath": "/c"}, {"mountPath": "/one", "subPath": "key"}
    spec = {
        "volumes": [{"name": "v", kind: source}],
        "container": {"volumeMounts": [{"name": "v", **mount} for mount in mounts]},
    }
    script = "for f in /c/key /c/new /one; do echo x > $f; done; ln -s /etc /c/link; rm /c/key"
    text = await node.shell("job-0", f"({script}) 2>&1; ls /c", **spec)
    assert text.count("Read-only file system") == 5, text
    assert text.endswith("\nkey\n")


@pytest.mark.parametrize(
    ("kind", "made", "problem"),
    [
        ("Directory", "file", "is not a Directory"),
        ("File", "folder", "is not a File"),
        ("Socket", "file", "is not a Socket"),
        ("CharDevice", "file", "is not a CharDevice"),
        ("FileOrCreate", "folder", "is not a File"),
        ("DirectoryOrCreate", "file", "is not a Directory"),
    ],
)
async def test_a_host_path_is_of_the_type_asked_for(
    node: Cluster, tmp_path: Path, kind: str, made: str, problem: str
) -> None:
    place = tmp_path / "place"
    if made == "file":
        place.touch()
    else:
        place.mkdir()
    source = {"hostPath": {"path": str(place), "type": kind}}
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/m"}]}
    await node.create("job-0", ["true"], volumes=[{"name": "v", **source}], container=mount)
    await node.until("job-0", lambda _: bool(node.events("FailedMount")))
    assert node.events("FailedMount")[0] == f"volume 'v': hostPath {place} {problem}"
