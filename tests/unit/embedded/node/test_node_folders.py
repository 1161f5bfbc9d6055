"""Folders on the host that stand for a pod's, and what is written into them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.node.containers.container_environment import PodContext
from trainyard.embedded.node.network.service_environment import ServiceEnvironment
from trainyard.embedded.node.node_settings import NodeSettings
from trainyard.embedded.node.runtime_folder import RuntimeFolder
from trainyard.embedded.node.volumes import host_folders
from trainyard.embedded.node.volumes.host_folders import PodRefused
from trainyard.embedded.node.volumes.pod_volumes import PodVolumes
from trainyard.embedded.registry import Registry


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    made = Registry(resources=RESOURCES)
    await made.ensure_system_objects()
    yield made
    await made.close()


def volumes(
    registry: Registry,
    tmp_path: Path,
    source: dict[str, Any],
    name: str = "v",
    containers: Any = (),
) -> PodVolumes:
    spec = {"volumes": [{"name": name, **source}], "containers": list(containers)}
    metadata = {"name": "p", "namespace": "default", "uid": "u"}
    settings = NodeSettings("n", str(tmp_path / "state"), gpus=())
    pod = {"metadata": metadata, "spec": spec}
    folder = str(tmp_path / "state" / "pods" / "p")
    of_node = (registry, ServiceEnvironment(), settings)
    return PodVolumes(
        PodContext(pod, folder, RuntimeFolder(folder, folder), "", *of_node, lambda *_: None)
    )


def labels(path: str) -> dict[str, Any]:
    return {"downwardAPI": {"items": [{"path": path, "fieldRef": {"fieldPath": "metadata.name"}}]}}


@pytest.mark.parametrize(
    ("link", "path"), [("sub", "sub/key"), ("key", "key"), (".key.new", "key")]
)
async def test_files_made_anew_are_never_written_through_a_link(
    registry: Registry, tmp_path: Path, link: str, path: str
) -> None:
    """A pod that is not kept from it by namespaces may have put one there."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_text("theirs")
    place = tmp_path / "state" / "pods" / "p" / "volumes" / "v"
    place.mkdir(parents=True)
    (place / link).symlink_to(outside if link == "sub" else outside / "key")
    try:
        volumes(registry, tmp_path, labels(path)).prepare()
    except OSError:
        assert link == "sub"
    else:
        assert not (place / "key").is_symlink()
        assert (place / "key").read_text() == "p"
    assert [(f.name, f.read_text()) for f in outside.iterdir()] == [("key", "theirs")]


async def test_a_file_takes_the_place_of_the_one_before(registry: Registry, tmp_path: Path) -> None:
    for _ in range(2):
        made = volumes(registry, tmp_path, labels("a/key"))
        made.prepare()
    (source,) = made.sources.values()
    assert source.read_only
    assert [path.name for path in Path(source.path, "a").iterdir()] == ["key"]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("../../v", {"emptyDir": {}}),
        ("v", {"persistentVolumeClaim": {"claimName": "../../x"}}),
        ("v", {"persistentVolumeClaim": {"claimName": ".."}}),
        ("v", labels("../../x")),
        ("v", labels("/x")),
    ],
)
async def test_a_name_that_was_never_admitted_makes_no_folder_elsewhere(
    registry: Registry, tmp_path: Path, name: str, source: dict[str, Any]
) -> None:
    before = sorted(tmp_path.rglob("x"))
    with pytest.raises(PodRefused):
        volumes(registry, tmp_path, source, name).prepare()
    assert sorted(tmp_path.rglob("x")) == before


@pytest.mark.parametrize(
    ("limit", "memory", "size"),
    [("8Mi", ("64Mi",), 8 << 20), ("64Mi", ("4Mi", "4Mi"), 8 << 20), (None, ("4Mi",), 4 << 20),
     (None, ("4Mi", None), 0), ("8Mi", (None,), 8 << 20)],
)  # fmt: skip
async def test_a_volume_in_memory_is_no_larger_than_the_pods_memory(
    registry: Registry, tmp_path: Path, limit: str | None, memory: tuple[str | None, ...], size: int
) -> None:
    containers = [
        {"name": str(number), "resources": {"limits": {"memory": each}} if each else {}}
        for number, each in enumerate(memory)
    ]
    source = {"emptyDir": {"medium": "Memory", **({"sizeLimit": limit} if limit else {})}}
    made = volumes(registry, tmp_path, source, containers=containers)
    made.prepare()
    assert [found for _, found in made.pending_tmpfs] == [size]


def test_only_links_in_system_folders_lead_to_a_folder_that_may_be_opened(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    assert host_folders.real_folder(f"{tmp_path}/folder/../folder/") == f"{tmp_path}/folder"
    assert host_folders.real_folder(f"{tmp_path}/link/x") is None
    for name in ("/bin", "/lib", "/var/run"):
        if os.path.islink(name) and os.path.dirname(name) in host_folders.SYSTEM_FOLDERS:
            assert host_folders.real_folder(name) == os.path.realpath(name)


def test_the_folders_of_clusters_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setenv("TRAINYARD_STATE_DIR", str(tmp_path / "link"))
    found = host_folders.cluster_folders()
    assert str(tmp_path / "real") in found
    assert os.geteuid() != 0 or any(f.endswith("/.local/state/trainyard") for f in found)
