"""A pod's root file system: a layer over the host's, thrown away with the pod (decision 40).

Runs in the container's first process, inside a mount namespace of its own. Writes land in a tmpfs
that is the upper layer of overlays; volumes and the working folder are bound in, so that only
they reach the host. Mount points that the host lacks are made in the upper layer beforehand: it
belongs to us even where, without root, the host's directory does not.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat

from trainyard.shim import syscalls as sys
from trainyard.shim.protocol import Bind, Root

_PSEUDO = ("/proc", "/sys", "/dev")
_UNTOUCHED = (b"nsfs", b"autofs", b"binfmt_misc", b"fusectl")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_READ_ONLY_PROC = ("sys", "sysrq-trigger", "irq", "bus")


def enter(root: Root, base: str, *, rootless: bool) -> int:
    """Build ``root`` on the empty directory ``base`` and make it this process's root directory.

    Returns a descriptor of the old one, which no path leads to any more; :func:`leave` ends it.
    """
    old = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    _Builder(root, base, rootless=rootless).build()
    os.chdir(os.path.join(base, "root"))
    sys.pivot_root(".", ".")
    os.chdir("/")
    return old


def leave(old: int) -> None:
    """Unmount the old root, before any program runs: it is mounted on the new one's ``..``."""
    os.fchdir(old)
    sys.umount(".")
    os.chdir("/")
    os.close(old)


def _beneath(path: str, folder: str) -> bool:
    return folder == "/" or path.startswith(folder + "/")


def _pseudo(path: str) -> bool:
    return any(path == top or _beneath(path, top) for top in _PSEUDO)


def mount_points() -> list[str]:
    """Mount points of this mount namespace, parents first, kernel file systems left out."""
    points = []
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            fields, _, kind = line.partition(b" - ")
            if kind.split(b" ", 1)[0] in _UNTOUCHED:
                continue
            raw = fields.split(b" ", 5)[4]
            if b"\\" in raw:  # octal escapes of space, tab, newline and backslash
                raw = raw.decode("unicode_escape").encode("latin-1")
            path = os.fsdecode(raw)
            if path != "/" and not _pseudo(path):
                points.append(path)
    return sorted(set(points))


class _Builder:
    def __init__(self, root: Root, base: str, *, rootless: bool) -> None:
        self._root, self._base, self._rootless = root, base, rootless
        self._new = os.path.join(base, "root")
        self._mounts = mount_points()
        self._layers: list[str] = []
        self._numbers = itertools.count()
        self._binds = sorted(
            (bind._replace(target=os.path.realpath(bind.target)) for bind in root.binds),
            key=lambda bind: bind.target.count("/") if bind.target != "/" else 0,
        )

    def build(self) -> None:
        sys.mount("tmpfs", self._base, "tmpfs", sys.MS_NOSUID | sys.MS_NODEV, "mode=755")
        os.mkdir(self._new)
        if not self._layer("/"):
            sys.mount(self._new, self._new, "", sys.MS_BIND)  # pivot_root wants a mount
            self._layers.append(self._new)
            self._spread("/")
        self._proc()
        self._sys()
        self._dev()
        if self._rootless:
            self._cover_closed_folders()
        for bind in self._binds:
            self._bind(bind)
        if self._root.work:
            self._make(os.path.realpath(self._root.work), directory=True)
        if self._root.read_only:
            for path in self._layers:
                with contextlib.suppress(OSError):
                    sys.mount("", path, "", sys.MS_REMOUNT | sys.MS_BIND | sys.MS_RDONLY)

    def _layer(self, path: str) -> bool:
        """Put an overlay of the host's directory ``path`` at its place; False if impossible."""
        number = next(self._numbers)
        upper, work = f"{self._base}/u{number}", f"{self._base}/w{number}"
        os.mkdir(upper)
        os.mkdir(work)
        _copy_attributes(path, upper)
        wanted = [(bind.target, _is_directory(bind)) for bind in self._binds]
        if self._root.work:
            wanted.append((os.path.realpath(self._root.work), True))
        for target, directory in wanted:
            if _beneath(target, path) and not os.path.lexists(target) and not _pseudo(target):
                _mirror(path, target, upper, directory)
        options = f"lowerdir={_escape(path)},upperdir={_escape(upper)},workdir={_escape(work)}"
        if self._rootless:
            options += ",userxattr"
        place = self._new + path if path != "/" else self._new
        try:
            sys.mount("overlay", place, "overlay", 0, options)
        except OSError:
            return False
        self._layers.append(place)
        for child in self._mounts:
            if _beneath(child, path) and self._outermost(child, path):
                self._show(child)
        return True

    def _outermost(self, mount: str, within: str) -> bool:
        return not any(_beneath(other, within) and _beneath(mount, other) for other in self._mounts)

    def _spread(self, path: str) -> None:
        """Rebuild the directory ``path`` entry by entry, where it cannot be layered as a whole."""
        place = self._new + path if path != "/" else self._new
        with os.scandir(path) as entries:
            for entry in entries:
                target = os.path.join(place, entry.name)
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), target)
                elif _pseudo(entry.path):
                    os.mkdir(target)
                elif not _beneath(self._base, entry.path) or entry.is_dir():
                    self._show(entry.path)

    def _show(self, path: str) -> None:
        """Make the host's file or directory ``path`` appear in the new root."""
        place = self._new + path
        try:
            directory = stat.S_ISDIR(os.stat(path).st_mode)
            self._make(path, directory=directory)
            if directory:
                if self._layer(path):
                    return
                if any(_beneath(mount, path) for mount in self._mounts):
                    self._spread(path)
                    return
            sys.mount(path, place, "", sys.MS_BIND | sys.MS_REC)
            sys.make_read_only(place)
        except OSError:
            pass  # a host mount that we may not see stays an empty place

    def _make(self, path: str, *, directory: bool) -> None:
        place = self._new + path
        if os.path.lexists(place):
            return
        if directory:
            os.makedirs(place, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))

    def _cover_closed_folders(self) -> None:
        """Empty the folders that this user may not enter and in which something is mounted.

        So that a volume at /root/.ssh works for everybody, as it does in a container image.
        """
        covered: set[str] = set()
        for bind in self._binds:
            parts = bind.target.split("/")[1:-1]
            for end in range(1, len(parts) + 1):
                parent = "/" + "/".join(parts[:end])
                if os.path.isdir(parent) and not os.access(parent, os.R_OK | os.X_OK):
                    if parent not in covered:
                        sys.mount("tmpfs", self._new + parent, "tmpfs", sys.MS_NOSUID, "mode=755")
                        covered.add(parent)
                    break

    def _bind(self, bind: Bind) -> None:
        place = self._new + bind.target
        self._make(bind.target, directory=_is_directory(bind))
        if not os.path.lexists(bind.source):  # a subPath that nobody has made yet
            os.makedirs(bind.source)
        sys.mount(bind.source, place, "", sys.MS_BIND | sys.MS_REC)
        if bind.read_only:
            _set_read_only(place)

    def _proc(self) -> None:
        place = self._new + "/proc"
        flags = sys.MS_NOSUID | sys.MS_NODEV | sys.MS_NOEXEC
        os.makedirs(place, exist_ok=True)
        try:
            sys.mount("proc", place, "proc", flags)
        except OSError:  # a host that masks parts of /proc forbids a new one
            sys.mount("/proc", place, "", sys.MS_BIND | sys.MS_REC)
            return
        if self._root.privileged or self._rootless:
            return
        for name in _READ_ONLY_PROC:
            path = f"{place}/{name}"
            with contextlib.suppress(OSError):
                sys.mount(path, path, "", sys.MS_BIND)
                sys.mount("", path, "", sys.MS_BIND | sys.MS_REMOUNT | sys.MS_RDONLY | flags)

    def _sys(self) -> None:
        place = self._new + "/sys"
        os.makedirs(place, exist_ok=True)
        with contextlib.suppress(OSError):
            sys.mount("/sys", place, "", sys.MS_BIND | sys.MS_REC)
            if not self._root.privileged:
                sys.make_read_only(place)

    def _dev(self) -> None:
        place = self._new + "/dev"
        os.makedirs(place, exist_ok=True)
        sys.mount("tmpfs", place, "tmpfs", sys.MS_NOSUID, "mode=755")
        for name in (*_DEVICES, *(os.path.relpath(path, "/dev") for path in self._root.devices)):
            source, target = f"/dev/{name}", f"{place}/{name}"
            if not os.path.exists(source):
                continue
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if os.path.isdir(source):
                os.makedirs(target, exist_ok=True)
            else:
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o666))
            sys.mount(source, target, "", sys.MS_BIND)
        for name, link in _DEVICE_LINKS.items():
            os.symlink(link, f"{place}/{name}")
        os.mkdir(f"{place}/pts")
        os.mkdir(f"{place}/shm")
        os.mkdir(f"{place}/mqueue")
        options = "newinstance,ptmxmode=0666,mode=620"
        sys.mount("devpts", f"{place}/pts", "devpts", sys.MS_NOSUID | sys.MS_NOEXEC, options)
        flags = sys.MS_NOSUID | sys.MS_NODEV
        sys.mount("tmpfs", f"{place}/shm", "tmpfs", flags, "mode=1777")


def _is_directory(bind: Bind) -> bool:
    return os.path.isdir(bind.source) or not os.path.exists(bind.source)


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _copy_attributes(source: str, target: str) -> None:
    status = os.stat(source)
    with contextlib.suppress(OSError):
        os.chown(target, status.st_uid, status.st_gid)
    os.chmod(target, stat.S_IMODE(status.st_mode))


def _mirror(lower: str, target: str, upper: str, directory: bool) -> None:
    """Make ``target`` (beneath ``lower``) in ``upper``; folders on the way keep the host's mode."""
    here, there = lower.rstrip("/"), upper
    *parents, last = os.path.relpath(target, lower).split("/")
    for name in parents:
        here, there = f"{here}/{name}", f"{there}/{name}"
        if not os.path.isdir(there):
            os.mkdir(there)
            if os.path.isdir(here):
                _copy_attributes(here, there)
    final = f"{there}/{last}"
    if directory:
        os.makedirs(final, exist_ok=True)
    elif not os.path.lexists(final):
        os.close(os.open(final, os.O_CREAT | os.O_WRONLY, 0o644))


def _set_read_only(place: str) -> None:
    try:
        sys.make_read_only(place)
    except OSError:  # before Linux 5.12: this mount only, not those beneath it
        sys.mount("", place, "", sys.MS_BIND | sys.MS_REMOUNT | sys.MS_RDONLY)
