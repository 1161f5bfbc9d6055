"""Checks that a path, or the server at a socket, is this user's, and not put there by others.

A cluster's token, socket and record are found by their path alone. Whoever can put one there reads
what is sent to it, and `trainyard down` ends the process that a record names (decision 87).
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from trainyard.schema.errors import TrainyardError

_PATH_LIMIT = 107
"""Bytes in sockaddr_un.sun_path, without the final zero."""
_MOST_LINKS = 40
_CREDENTIALS = struct.Struct("iII")
"""struct ucred: pid, uid, gid."""


class NotOurs(TrainyardError):
    """Another user owns a path, or can replace what is there."""


class ServerStopped(TrainyardError):
    """The process of a server is stopped."""


class FolderLost(TrainyardError):
    """The file system of a folder, or its disk, is gone."""


class Peer(NamedTuple):
    """The process at the other end of a Unix socket, as it was when it connected or listened."""

    pid: int
    uid: int
    gid: int


def peer_of(connection: socket.socket) -> Peer:
    """Return the process at the other end."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Peer(*_CREDENTIALS.unpack(raw))


def check_runs(pid: int) -> None:
    """Raise ServerStopped for a server that SIGSTOP or a debugger holds: it answers nothing."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return
    if state in (b"T", b"t"):
        raise ServerStopped(
            f"the cluster is process {pid}, which is stopped, and answers nothing; let it go on "
            f"with: kill -CONT {pid}"
        )


def check_server(connection: socket.socket, path: str) -> None:
    """Raise NotOurs unless the server at a socket is run by this user or root."""
    peer = peer_of(connection)
    if peer.uid not in (0, os.geteuid()):
        raise NotOurs(
            f"the server at {path} is process {peer.pid} of {user_description(peer.uid)}, who is "
            "neither you nor root: nothing is sent to it; set TRAINYARD_STATE_DIR to a folder of "
            "your own"
        )


@contextmanager
def socket_address(path: str | Path) -> Iterator[str]:
    """Yield a path of the socket that fits into a Unix address, however deep its folder is."""
    folder, name = os.path.split(os.fspath(path))
    if len(os.fsencode(path)) <= _PATH_LIMIT:
        yield os.fspath(path)
        return
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def check_folder(folder: Path, *, owner: bool = False) -> None:
    """Raise NotOurs where somebody besides this user and root can change what a folder holds.

    That is so of one that others own or may write to, and of one below such a folder, where they
    could put another in its place; a sticky folder such as /tmp does not let them. What lies above
    may also belong to whoever owns the home folder, whose shell we run. With `owner` the folder
    has to be this user's own. One that does not exist is nobody's. Raises FolderLost where it
    cannot be looked at.
    """
    us = os.geteuid()
    for path, status, is_last in _folders_on_path(folder):
        if status.st_uid == us or (status.st_uid == 0 and not (owner and is_last)):
            pass
        elif is_last or not _is_tolerated(status.st_uid):
            whose = user_description(status.st_uid)
            if us == 0 and is_last:
                fix = f"run this as {whose}, or set TRAINYARD_STATE_DIR to a folder of your own"
            else:
                fix = "set TRAINYARD_STATE_DIR to a folder of your own"
            raise NotOurs(
                f"{_path_description(folder, path)} belongs to {whose}, not to you: {fix}"
            )
        if stat.S_ISLNK(status.st_mode) or (status.st_mode & stat.S_ISVTX and not is_last):
            continue
        if writers := _other_writers(status):
            raise NotOurs(
                f"{_path_description(folder, path)} may be written to by {writers} (mode "
                f"{status.st_mode & 0o7777:04o}): chmod go-w {path}, or set TRAINYARD_STATE_DIR to "
                "a folder of your own"
            )


def check_secret(path: Path) -> None:
    """Raise NotOurs for a file that somebody besides this user and root owns or may open."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise NotOurs(f"{path} is not a file of its own: remove it")
    if status.st_uid not in (0, os.geteuid()):
        raise NotOurs(f"{path} belongs to {user_description(status.st_uid)}, not to you: remove it")
    if status.st_mode & 0o077:
        raise NotOurs(
            f"{path} may be opened by others (mode {status.st_mode & 0o7777:04o}): chmod 600 it, "
            "or remove it, so that a new one is made"
        )


def user_description(uid: int) -> str:
    """Return a user for messages: `alice (uid 1001)`."""
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _path_description(folder: Path, path: Path) -> str:
    if path == folder:
        return f"cannot use the state folder {folder}: it"
    return f"cannot use the state folder {folder}: {path}, on the way there,"


def _folders_on_path(folder: Path) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Yield every folder and link from the root to `folder`, links followed; True for the last."""
    left = list(reversed(folder.absolute().parts[1:]))
    current, links = Path("/"), 0
    yield current, os.lstat(current), not left
    while left:
        name = left.pop()
        if name == "..":
            current = current.parent
            continue
        path = current / name
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return
        except OSError as error:
            raise FolderLost(
                f"cannot use the state folder {folder}: {error.strerror} ({path}); mend its disk, "
                "or mount it again; what runs there is ended by: trainyard down"
            ) from None
        if not stat.S_ISLNK(status.st_mode):
            current = path
            yield path, status, not left
            continue
        links += 1
        if links > _MOST_LINKS:
            return
        yield path, status, False
        to = Path(os.readlink(path))
        if to.is_absolute():
            current = Path("/")
        left += reversed(to.parts[1:] if to.is_absolute() else to.parts)


def _is_tolerated(uid: int) -> bool:
    """Whether a user may own a parent folder: the owner of the home folder, or root as seen from a
    user namespace."""
    with suppress(OSError):
        if (home := os.environ.get("HOME")) and uid == os.stat(home).st_uid:
            return True
    with suppress(OSError, ValueError):
        if uid == int(Path("/proc/sys/kernel/overflowuid").read_text()):
            maps = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
            return not any(int(m[0]) <= uid < int(m[0]) + int(m[2]) for m in maps)
    return False


def _other_writers(status: os.stat_result) -> str:
    """Who else may write to a folder, or ""."""
    if status.st_mode & stat.S_IWOTH:
        return "everybody"
    if status.st_mode & stat.S_IWGRP and status.st_gid != 0:
        import grp
        import pwd

        try:
            group = grp.getgrgid(status.st_gid)
        except KeyError:
            return "" if status.st_gid == os.getegid() else f"group {status.st_gid}"
        with suppress(KeyError):  # a group that every user has for themselves alone
            user = pwd.getpwuid(status.st_uid).pw_name
            if group.gr_name == user and set(group.gr_mem) <= {user}:
                return ""
        return f"group {group.gr_name}"
    return ""
