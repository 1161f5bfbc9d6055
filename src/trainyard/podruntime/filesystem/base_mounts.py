"""The mounts that all pods' roots are built on, made by the zygote before any task is known.

The zygote makes them in a new mount namespace, forks the container init into it, and returns to its
own. If the init did this itself, it would copy every page of memory that it takes. Nothing of a pod
may be in here. Only /proc has to wait: it can be mounted only from inside its process namespace.
"""

from __future__ import annotations

import os
import select

from trainyard.podruntime import isolation
from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.filesystem import kernel_filesystems
from trainyard.podruntime.protocol import Root

NEW_ROOT, SCRATCH_FOLDER, SCRATCH_FILE = "root", "d", "f"
"""In a pod's tmpfs, its container init's working directory: where the root will be, and a folder
and a file to mount on for a moment."""
EMPTY = "../empty"
"""An empty folder, mounted read-only."""
_POD = "pod"
_KERNEL = "kernel"
_PREPARED = {"proc": "kernel/proc", "sys": "../sys", "dev": "kernel/dev"}
_UNTOUCHED = (b"nsfs", b"autofs", b"binfmt_misc", b"fusectl")
_MOUNTS, _READ_BYTES = "/proc/self/mountinfo", 1 << 16


class MountPoints:
    """The mount points of this process's namespace, except for kernel file systems.

    It watches the namespace in which it was made, whose changes propagate to those derived from it.
    """

    def __init__(self) -> None:
        self._watched = os.open(_MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
        self._changes = select.poll()
        self._changes.register(self._watched, select.POLLPRI)
        self._known: list[str] | None = None

    def list_mounts(self) -> list[str]:
        """The mount points, parents first; parsed anew only after a change."""
        if self._changes.poll(0) or self._known is None:
            self._known = _parse_mount_points(_read_whole(_MOUNTS))
        return self._known

    def assume(self, known: list[str]) -> None:
        """Take ``known`` for the mount points as of when this was made."""
        self._known = known

    def close(self) -> None:
        os.close(self._watched)


def _read_whole(path: str) -> bytes:
    """Read a file of /proc whole, in pieces as large as the kernel gives."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(fd, _READ_BYTES), b""))
    finally:
        os.close(fd)


def _parse_mount_points(mountinfo: bytes) -> list[str]:
    points = set()
    for line in mountinfo.splitlines():
        raw = line.split(b" ", 5)[4]
        if raw == b"/" or kernel_filesystems.is_kernel_path(raw):
            continue
        if line.partition(b" - ")[2].split(b" ", 1)[0] in _UNTOUCHED:
            continue
        if b"\\" in raw:  # octal escapes of space, tab, newline and backslash
            raw = raw.decode("unicode_escape").encode("latin-1")
        points.add(os.fsdecode(raw))
    return sorted(points)


class BaseMounts:
    """The zygote's mount namespace, with what all pods share."""

    def __init__(self, base: str) -> None:
        """Moves this process into it; ``base`` as in ``ClusterContext``."""
        self._base = base
        sys.unshare(sys.CLONE_NEWNS)
        # Slave mounts: later mounts outside propagate here, and to derived namespaces.
        sys.mount("", "/", "", sys.MS_REC | sys.MS_SLAVE)
        self._top = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        sys.mount("tmpfs", base, "tmpfs", sys.MS_NOSUID | sys.MS_NODEV, "mode=755")
        os.chdir(base)
        for name in (_POD, "empty"):
            os.mkdir(name)
        sys.mount("empty", "empty", "", sys.MS_BIND)
        kernel_filesystems.set_read_only("empty")
        kernel_filesystems.prepare_sys(".", "empty")
        os.chdir("/")
        self._home = isolation.open_namespace("self", "mnt")
        self._mounted = MountPoints()
        self._pod_mounts: MountPoints | None = None

    def prepare_for_child(self) -> None:
        """Enter a new mount namespace with a future pod's mounts, except /proc.

        Its tmpfs becomes the working directory, since its path is unreachable once the state folder
        is covered.
        """
        self._pod_mounts = MountPoints()
        self._pod_mounts.assume(self._mounted.list_mounts())
        sys.unshare(sys.CLONE_NEWNS)
        os.chdir(self._base)
        sys.mount("tmpfs", _POD, "tmpfs", sys.MS_NOSUID | sys.MS_NODEV, "mode=755")
        os.chdir(_POD)
        for name in (NEW_ROOT, SCRATCH_FOLDER, _KERNEL):
            os.mkdir(name)
        os.mknod(SCRATCH_FILE)
        kernel_filesystems.prepare_dev(_KERNEL)

    def return_home(self) -> None:
        """Return to the zygote's own namespace, from which the next ones are derived."""
        try:
            sys.setns(self._home, sys.CLONE_NEWNS)
            os.fchdir(self._top)
            os.chroot(".")
        except OSError:
            os._exit(1)  # further children would start from a wrong namespace
        if self._pod_mounts is not None:
            self._pod_mounts.close()
            self._pod_mounts = None

    def finish_in_child(self) -> MountPoints:
        """In the forked child: mount /proc, and close what belongs to the zygote."""
        for fd in (self._home, self._top):
            os.close(fd)
        self._mounted.close()
        kernel_filesystems.prepare_proc(_KERNEL, EMPTY)
        assert self._pod_mounts is not None
        return self._pod_mounts


def install_kernel_filesystems(root: Root) -> None:
    """Move /proc, /sys and /dev into the new root."""
    kernel_filesystems.install(NEW_ROOT, _PREPARED, root)
