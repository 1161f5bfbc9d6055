"""What somebody else put in our way is neither used nor spoken to."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import pytest

from trainyard.embedded.tls_files import ensure_token
from trainyard.kube.transport import Request
from trainyard.kube.unix_transport import UnixTransport
from trainyard.machine.ownership import NotOurs, check_folder, check_secret, peer_of
from trainyard.machine.state_folder import (
    Paths,
    RunningCluster,
    StateError,
    find_cluster,
    state_folder,
)

STRANGER = 4243
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two users")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_folder_of_this_user_is_fine_below_a_sticky_one_and_through_a_link(
    tmp_path: Path,
) -> None:
    (tmp_path / "everybodys").mkdir()
    (tmp_path / "everybodys").chmod(0o1777)
    mine = tmp_path / "everybodys" / "mine"
    mine.mkdir(mode=0o755)
    (tmp_path / "link").symlink_to("everybodys/../everybodys/mine")
    check_folder(mine, owner=True)
    check_folder(tmp_path / "link", owner=True)
    check_folder(tmp_path / "absent" / "below", owner=True)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_a_folder_that_others_may_write_to_is_refused_with_the_fix(
    tmp_path: Path, mode: int
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(mode)
    if os.geteuid() == 0:
        os.chown(folder, 0, STRANGER)
    elif mode == 0o775:
        pytest.skip("needs root, to give a folder to a group")
    with pytest.raises(NotOurs, match=f"chmod go-w {folder}, or set TRAINYARD_STATE_DIR"):
        check_folder(folder)


def test_a_folder_below_one_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open" / "state"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o777)
    with pytest.raises(NotOurs, match=rf"{folder.parent}, on the way there, may be written"):
        check_folder(folder)


@needs_root
@pytest.mark.parametrize("act", [find_cluster, lambda folder: Paths(folder).prepare()])
def test_a_folder_of_somebody_else_is_refused_and_nothing_is_written_there(
    tmp_path: Path, act: Callable[[Path], object]
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    os.chown(folder, STRANGER, STRANGER)
    expected = f"state folder {folder}: it belongs to uid {STRANGER}, not to you: run this as"
    with pytest.raises(NotOurs, match=expected):
        act(folder)
    assert not list(folder.iterdir())


@needs_root
def test_a_link_or_folder_of_somebody_else_on_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    (tmp_path / "mine").mkdir()
    link, theirs = tmp_path / "tmp" / "link", tmp_path / "tmp" / "theirs"
    link.symlink_to(tmp_path / "mine")
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    (theirs / "state").mkdir(parents=True)
    os.chown(theirs, STRANGER, STRANGER)
    for path, what in ((link, link), (theirs / "state", theirs)):
        with pytest.raises(NotOurs, match=f"{what}.* belongs to uid {STRANGER}"):
            check_folder(path)


@needs_root
def test_below_the_home_folder_its_owner_is_trusted(tmp_path: Path) -> None:
    """As in a container that runs as root with the home folder of the user who started it."""
    os.chown(tmp_path, STRANGER, STRANGER)
    (tmp_path / ".local").mkdir()
    check_folder(tmp_path / ".local", owner=True)


def _serve_as_stranger(path: str, ready: object) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o777)
    os.setresgid(STRANGER, STRANGER, STRANGER)
    os.setresuid(STRANGER, STRANGER, STRANGER)
    listener.listen()  # the peer is who listens
    ready.set()  # type: ignore[attr-defined]
    while True:
        listener.accept()[0].sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


@needs_root
def test_nothing_is_sent_to_a_server_of_somebody_else(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    record = RunningCluster(1, str(folder / "api.sock"), 0, 0.0, "root")
    record.write(Paths(folder))
    processes = get_context("fork")
    ready = processes.Event()
    server = processes.Process(target=_serve_as_stranger, args=(record.socket, ready), daemon=True)
    server.start()
    try:
        assert ready.wait(120)
        expected = f"is process {server.pid} of uid {STRANGER}, who is neither you nor root"
        with pytest.raises(NotOurs, match=expected):
            find_cluster(folder)
        with pytest.raises(NotOurs, match=expected):
            asyncio.run(UnixTransport(record.socket).request(Request("GET", "/"), 10))
    finally:
        server.kill()
        server.join()


def test_the_peer_of_a_socket_is_told() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert peer_of(one) == (os.getpid(), os.geteuid(), os.getegid())


def test_a_token_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    made = ensure_token(tmp_path / "token")
    assert ensure_token(tmp_path / "token") == made
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(NotOurs, match=r"may be opened by others \(mode 0644\): chmod 600 it"):
        ensure_token(tmp_path / "token")
    (tmp_path / "link").symlink_to(tmp_path / "token")
    with pytest.raises(NotOurs, match="not a file of its own"):
        check_secret(tmp_path / "link")


@needs_root
def test_a_token_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    ensure_token(tmp_path / "token")
    os.chown(tmp_path / "token", STRANGER, STRANGER)
    with pytest.raises(NotOurs, match=f"belongs to uid {STRANGER}"):
        ensure_token(tmp_path / "token")


def test_without_a_home_folder_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "TRAINYARD_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_123)
    with pytest.raises(StateError, match=r"no home folder .*: set TRAINYARD_STATE_DIR"):
        state_folder()
