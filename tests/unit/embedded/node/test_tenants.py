"""Pods of somebody else than the cluster's owner: what they may ask for, and as whom they run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded import tenants
from trainyard.embedded.node.volumes.folder_acl import grant_read
from trainyard.embedded.registry import Registry
from trainyard.kube.errors import Forbidden, NotFound
from trainyard.machine.users import User
from trainyard.podruntime.filesystem.impersonation import acting_as
from trainyard.podruntime.protocol import Program

BOB = User(61002, 61002, "bob", "/home/bob", (61002, 61100))


@pytest.mark.parametrize("uid", [0, 999_999_999, 1_234_201_103, (1 << 32) - 2])
def test_a_namespace_belongs_to_the_user_whom_it_names(uid: int) -> None:
    marks = {"trainyard.dev/owner": "x", "trainyard.dev/owner-uid": str(uid)}
    assert tenants.owner_uid({"metadata": {"name": "n", "annotations": marks}}) == uid
    assert tenants.owner_uid({"metadata": {"name": "n", "annotations": {"note": "1"}}}) is None
    assert tenants.owner_uid({"metadata": {"name": "n"}}) is None


@pytest.mark.parametrize("text", ["", "-1", "4294967295", "12345678901", "alice", "1 ", 7, None])
def test_a_user_who_cannot_be_read_is_not_the_clusters_owner(text: object) -> None:
    marks = {"trainyard.dev/owner": "x", "trainyard.dev/owner-uid": text}
    with pytest.raises(Forbidden, match="which is no user's id"):
        tenants.owner_uid({"metadata": {"name": "n", "annotations": marks}})
    with pytest.raises(Forbidden, match="is None, which is no user's id"):
        tenants.owner_uid({"metadata": {"name": "n", "annotations": {"trainyard.dev/owner": "x"}}})


async def test_a_pod_whose_namespace_is_gone_is_nobodys() -> None:
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    assert tenants.tenant_of(registry, "default") is None
    with pytest.raises(NotFound):
        tenants.tenant_of(registry, "gone")
    await registry.close()


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        ({}, []),
        ({"securityContext": {"runAsUser": 61002, "fsGroup": 61100}}, []),
        ({"securityContext": {"runAsUser": 0}}, ["spec.securityContext.runAsUser"]),
        ({"securityContext": {"supplementalGroups": [61100, 0]}}, ["spec.securityContext"]),
        ({"container": {"runAsGroup": 0}}, ["spec.containers[0].securityContext"]),
        ({"container": {"privileged": True}}, ["spec.containers[0].securityContext.privileged"]),
        (
            {"container": {"capabilities": {"add": ["CHOWN"], "drop": ["ALL"]}}},
            ["spec.containers[0].securityContext.capabilities.add"],
        ),
    ],
)
def test_what_a_pod_may_not_ask_for_is_named_by_its_path(
    spec: dict[str, Any], paths: list[str]
) -> None:
    context = spec.pop("container", {})
    spec["containers"] = [{"name": "main", "securityContext": context}]
    found = tenants.forbidden_fields({"metadata": {"containers": []}, "spec": spec}, BOB)
    assert [cause.field for cause in found] == paths


def test_templates_of_jobs_are_looked_into() -> None:
    template = {"spec": {"initContainers": [], "containers": [], "securityContext": {}}}
    template["spec"]["initContainers"] = [{"securityContext": {"runAsUser": 1}}]
    job = {"spec": {"replicaSpecs": [{"type": "worker", "template": template}]}}
    (cause,) = tenants.forbidden_fields(job, BOB)
    where = "spec.replicaSpecs[0].template.spec.initContainers[0].securityContext.runAsUser"
    assert cause.field == where
    assert "pods here run as bob (61002)" in cause.message


def test_what_is_added_to_a_pod_that_runs_is_looked_into() -> None:
    added = [{"securityContext": {"privileged": True}}]
    pod = {"spec": {"containers": [], "ephemeralContainers": added}}
    (cause,) = tenants.forbidden_fields(pod, BOB)
    assert cause.field == "spec.ephemeralContainers[0].securityContext.privileged"


def test_a_guests_program_has_their_user_and_no_privileges() -> None:
    wanted = Program(("id",), {}, "/", user=0, privileged=True, capabilities=1, unconfined=True)
    made = tenants.restrict_program(wanted, BOB)
    assert (made.user, made.group, made.groups) == (61002, 61002, (61002, 61100))
    assert (made.privileged, made.unconfined, made.capabilities) == (False, False, 0)
    assert made.no_new_privileges


def test_a_guests_environment_has_nothing_of_the_owners_home() -> None:
    caches = {"HF_HOME": "/root/.cache/hf", "PYTHONPATH": "/opt/lib:/root/lib"}
    plain = {"PATH": "/root/bin:/bin", "LC_ALL": "C", "NCCL_DEBUG": "INFO"}
    own = {"HOME": "/home/bob", "USER": "bob", "LOGNAME": "bob"}
    owners = {"HOME": "/root", "USER": "root", **caches, **plain}
    assert tenants.tenant_environment(owners, BOB) == plain | own
    without_home = tenants.tenant_environment(caches | plain, BOB)
    assert without_home == caches | plain | own


def let_pass(folder: Path) -> None:
    """Let other users through to a folder of pytest, which is for its user alone."""
    folder.chmod(0o711)
    if folder.parent != Path(tempfile.gettempdir()):
        let_pass(folder.parent)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another user")
def test_files_are_reached_with_a_users_rights_and_afterwards_with_ones_own(
    tmp_path: Path,
) -> None:
    let_pass(tmp_path)
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "closed" / "inner").mkdir()
    (tmp_path / "groups").mkdir(mode=0o730)
    (tmp_path / "groups").chmod(0o730)
    os.chown(tmp_path / "groups", 0, 61100)
    with acting_as(BOB.uid, BOB.gid, BOB.groups):
        with pytest.raises(PermissionError):
            os.open(tmp_path / "closed" / "inner", os.O_PATH)
        (tmp_path / "groups" / "made").mkdir()
    with acting_as(BOB.uid, BOB.gid, ()), pytest.raises(PermissionError):
        os.stat(tmp_path / "groups" / "made")
    made = (tmp_path / "groups" / "made").stat()
    assert (made.st_uid, made.st_gid) == (61002, 61002)
    (tmp_path / "closed" / "inner" / "again").touch()
    assert os.geteuid() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be several users")
def test_a_folder_is_opened_to_those_who_are_named(tmp_path: Path) -> None:
    let_pass(tmp_path)
    opened = tmp_path / "opened"
    opened.mkdir(mode=0o755)
    (opened / "log").touch()
    grant_read(str(opened), BOB.uid)
    grant_read(str(opened), 61001)
    opened.chmod(0o700)  # as the next start does
    grant_read(str(opened), BOB.uid)
    for uid in (BOB.uid, 61001):
        with acting_as(uid, uid, ()):
            assert os.listdir(opened) == ["log"]
            with pytest.raises(PermissionError):
                (opened / "more").touch()
    with acting_as(61003, 61003, ()), pytest.raises(PermissionError):
        os.stat(opened / "log")
