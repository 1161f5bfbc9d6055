"""Resolving paths that a volume, an image or a manifest names, without ever leaving a folder.

What a pod can write may hold links, and these can change at any moment, so a path through it is
never resolved by its text. The kernel resolves it (``openat2``, Linux 5.6). Where a folder has to
be made, or the kernel is older, a walk holds each folder open and follows links only by reading
them. The result is a descriptor (``O_PATH``), to be used by ``/proc/self/fd``.
"""

# Decision 77. CVE-2017-1002101 and CVE-2021-25741 came from paths that were checked as texts.

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from typing import NoReturn

from trainyard.podruntime import syscalls as sys

AS_ROOT = sys.RESOLVE_IN_ROOT
"""The folder acts as a root directory: absolute links and ``..`` stay inside."""
BENEATH = sys.RESOLVE_BENEATH
"""A path that leaves the folder is refused, with EXDEV."""

_FLAGS = os.O_PATH | os.O_CLOEXEC
_UNTIDY = re.compile(r"//|/\.\.?(/|$)|./$")
_LINKS = 40  # as many as the kernel follows
# Missing, forbidden by a seccomp filter that does not know it, or disturbed by a rename.
_NO_ANSWER = (errno.ENOSYS, errno.EPERM, errno.EAGAIN)


def find(folder: int, path: str, within: int) -> int:
    """Open ``path`` in the open ``folder``; ``within`` is AS_ROOT or BENEATH.

    Raises OSError: FileNotFoundError, and EXDEV where it would leave.
    """
    try:
        return sys.openat2(folder, path or ".", _FLAGS, within | sys.RESOLVE_NO_MAGICLINKS)
    except OSError as error:
        if error.errno not in _NO_ANSWER:
            raise
    return walk(folder, path, within)


def make(
    folder: int, path: str, within: int, *, directory: bool = True, copies_owner: bool = False
) -> int:
    """As ``find``, but make what is missing: folders, and at the end a folder or a file.

    ``copies_owner``: with mode and owner of ``folder``, otherwise with mode 0755.
    """
    try:
        return find(folder, path, within)
    except FileNotFoundError:
        model = os.fstat(folder) if copies_owner else None
        return walk(folder, path, within, Maker(directory, model))


def open_without_links(path: str) -> int:
    """Open the absolute ``path``; a link anywhere on it is refused, with ELOOP."""
    try:
        return sys.openat2(sys.AT_FDCWD, path, _FLAGS, sys.RESOLVE_NO_SYMLINKS)
    except OSError as error:
        if error.errno not in _NO_ANSWER:
            raise
    top = os.open("/", _FLAGS)
    try:
        return walk(top, path, AS_ROOT, links=0)
    finally:
        os.close(top)


def real_path(path: str) -> str:
    """As ``os.path.realpath``, but much quicker where no link is on the way."""
    if path.startswith("/") and not _UNTIDY.search(path):
        there = path
        with contextlib.suppress(OSError):
            while there != "/":
                try:
                    os.close(sys.openat2(sys.AT_FDCWD, there, _FLAGS, sys.RESOLVE_NO_SYMLINKS))
                    break
                except FileNotFoundError:
                    there = os.path.dirname(there)
            return path
    return os.path.realpath(path)


def proc_path(fd: int) -> str:
    """A path to what ``fd`` refers to, whichever root it lies in."""
    return f"/proc/self/fd/{fd}"


def explain_refusal(error: OSError) -> str:
    """Why a path was refused or a mount failed, in words."""
    if error.errno == errno.EXDEV:
        return "a link on its way leads out of the volume"
    if error.errno == errno.ELOOP:
        return "there is a link on its way, which is not followed here"
    if error.errno == errno.EROFS:
        return "the mount point is missing, and lies in a read-only volume"
    return os.strerror(error.errno) if error.errno else str(error)


class Maker:
    """Makes what a walk finds missing; see ``make``."""

    def __init__(self, directory: bool = True, model: os.stat_result | None = None) -> None:
        self._directory, self._model = directory, model

    def make(self, folder: int, name: str, is_last: bool) -> None:
        """Make it. If somebody else does at the same moment that is as good: the walk checks it."""
        try:
            if is_last and not self._directory:
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
                os.close(os.open(name, flags, 0o644, dir_fd=folder))
                return
            os.mkdir(name, 0o700, dir_fd=folder)
            fd = os.open(name, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except FileExistsError:
            return
        if self._model is not None:
            with contextlib.suppress(PermissionError):
                os.fchown(fd, self._model.st_uid, self._model.st_gid)
        os.fchmod(fd, stat.S_IMODE(self._model.st_mode) if self._model else 0o755)
        os.close(fd)


def walk(
    folder: int, path: str, within: int, maker: Maker | None = None, links: int = _LINKS
) -> int:
    """What ``find`` and ``make`` do, without help from the kernel."""
    path_walk = _PathWalk(folder, path, within, links)
    try:
        while path_walk.remaining:
            name = path_walk.remaining.pop()
            if name in (".", ".."):
                path_walk.handle_dots(is_up=name == "..")
            else:
                path_walk.enter(
                    _step(path_walk.folders[-1], name, maker, is_last=not path_walk.remaining)
                )
        return path_walk.folders.pop()
    finally:
        path_walk.close_down_to(0)


class _PathWalk:
    """The parts still to walk, the last one first, and the folders walked through, held open."""

    def __init__(self, folder: int, path: str, within: int, links: int) -> None:
        self.path, self._within, self._links = path, within, links
        self.remaining: list[str] = []
        self.folders = [os.dup(folder)]
        self._push(path)

    def handle_dots(self, *, is_up: bool) -> None:
        """Only a folder has a ``.`` and a ``..``."""
        if not stat.S_ISDIR(os.fstat(self.folders[-1]).st_mode):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.path)
        if is_up and len(self.folders) > 1:
            self.close_down_to(len(self.folders) - 1)
        elif is_up and self._within == BENEATH:
            self._refuse_leaving()

    def enter(self, fd: int) -> None:
        self.folders.append(fd)
        if not stat.S_ISLNK(os.fstat(fd).st_mode):
            return
        if not self._links:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self.path)
        self._links -= 1
        text = os.readlink("", dir_fd=fd)
        self.close_down_to(len(self.folders) - 1)
        self._push(text)

    def close_down_to(self, depth: int) -> None:
        while len(self.folders) > depth:
            os.close(self.folders.pop())

    def _push(self, path: str) -> None:
        if path.startswith("/"):
            if self._within == BENEATH:
                self._refuse_leaving()
            self.close_down_to(1)
        if path.endswith("/"):
            path += "."
        self.remaining += [part for part in reversed(path.split("/")) if part]

    def _refuse_leaving(self) -> NoReturn:
        self.close_down_to(0)
        raise OSError(errno.EXDEV, "leaves the folder", self.path)


def _step(folder: int, name: str, maker: Maker | None, *, is_last: bool) -> int:
    flags = _FLAGS | os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        if maker is None:
            raise
    maker.make(folder, name, is_last)
    return os.open(name, flags, dir_fd=folder)
