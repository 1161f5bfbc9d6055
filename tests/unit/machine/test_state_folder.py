"""The state folder: where it is, and how a running cluster is found."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from trainyard.machine.ownership import socket_address
from trainyard.machine.state_folder import (
    Paths,
    RunningCluster,
    StateError,
    find_cluster,
    is_disk_full,
    node_name,
    state_folder,
)


def test_the_folder_is_the_one_the_user_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_STATE_DIR", "/somewhere")
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    assert state_folder() == Path("/somewhere")
    monkeypatch.delenv("TRAINYARD_STATE_DIR")
    assert state_folder() == Path("/elsewhere/trainyard")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert state_folder() == Path("/home/me/.local/state/trainyard")


@pytest.mark.parametrize("folder", ["state", "deep/" * 50])
def test_a_cluster_is_found_only_while_it_answers(tmp_path: Path, folder: str) -> None:
    paths = Paths(tmp_path / folder)
    paths.prepare()
    record = RunningCluster(
        pid=1, socket=str(paths.api_socket), port=0, started=0.0, isolation="root"
    )
    record.write(paths)
    assert find_cluster(paths.folder) is None
    with socket.socket(socket.AF_UNIX) as listener, socket_address(record.socket) as short:
        listener.bind(short)
        listener.listen()
        assert find_cluster(paths.folder) == record
    assert find_cluster(paths.folder) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"unknown": 1}'])
def test_a_damaged_record_stands_for_no_cluster(tmp_path: Path, text: str) -> None:
    Paths(tmp_path).record.write_text(text)
    assert find_cluster(tmp_path) is None


def test_a_folder_that_cannot_be_made_is_named_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match=r"file/state.*TRAINYARD_STATE_DIR"):
        Paths(tmp_path / "file" / "state").prepare()


@pytest.mark.parametrize("name", ["pods", "runs", "certificates", "shim.sock", "state.db", "lock"])
def test_what_is_of_the_wrong_kind_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.mkdir() if "." in name or name == "lock" else path.touch()
    with pytest.raises(StateError, match=rf"{path} is a f\w+, and a cluster has .* move it away"):
        Paths(tmp_path).prepare()
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    ("host", "node"),
    [
        ("Box.example.org", "box"),
        ("my_machine", "my-machine"),
        ("x" * 80, "x" * 63),
        ("...", "localhost"),
    ],
)
def test_the_nodes_name_is_a_dns_label(
    monkeypatch: pytest.MonkeyPatch, host: str, node: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    assert node_name() == node
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", node_name())


def test_every_folder_that_is_made_is_the_users_own(tmp_path: Path) -> None:
    Paths(tmp_path / "state" / "runs" / "1").prepare()
    made = [tmp_path / "state", tmp_path / "state" / "runs", tmp_path / "state" / "runs" / "1"]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700] * 3


def test_a_disk_is_full_when_hardly_anything_can_be_written(tmp_path: Path) -> None:
    assert not is_disk_full(tmp_path)
    assert not is_disk_full(tmp_path / "absent")
    assert is_disk_full(Path("/proc/self"))  # a file system without any blocks
