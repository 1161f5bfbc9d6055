"""The kernel's own file systems in a pod's root: /proc, /sys and /dev.

What tells of the machine or changes it is hidden or read-only, by the lists that container runtimes
share (https://github.com/moby/moby/blob/master/oci/defaults.go). A privileged container sees all.
"""

from __future__ import annotations

import contextlib
import os

from trainyard.shim import syscalls as sys
from trainyard.shim.protocol import Root

_TOPS = ("/proc", "/sys", "/dev")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_READ_ONLY_PROC = ("bus", "fs", "irq", "sys", "sysrq-trigger")
_MASKED_PROC = (
    "acpi asound interrupts kcore keys latency_stats sched_debug scsi timer_list timer_stats"
)
_MASKED_SYS = ("firmware", "devices/virtual/powercap")
_PROC_FLAGS = sys.MS_NOSUID | sys.MS_NODEV | sys.MS_NOEXEC
_DEV_SIZE = 1 << 20


def holds(path: str) -> bool:
    """Whether a path lies in one of these."""
    return any(path == top or path.startswith(top + "/") for top in _TOPS)


def mount_all(place: str, root: Root, *, rootless: bool) -> None:
    """Mount all three beneath ``place``; the current folder is a tmpfs of the caller's own."""
    os.mkdir("masked", 0o555)
    _proc(f"{place}/proc", root, rootless=rootless)
    _sys(f"{place}/sys", root)
    _dev(f"{place}/dev", root)


def set_read_only(place: str) -> None:
    """Make the mount at ``place`` read-only, and those beneath it as far as the kernel can."""
    try:
        sys.make_read_only(place)
    except OSError:  # before Linux 5.12: this mount only, not those beneath it
        sys.mount("", place, "", sys.MS_BIND | sys.MS_REMOUNT | sys.MS_RDONLY)


def _proc(place: str, root: Root, *, rootless: bool) -> None:
    os.makedirs(place, exist_ok=True)
    try:
        sys.mount("proc", place, "proc", _PROC_FLAGS)
    except OSError:  # a host that masks parts of /proc forbids a new one
        sys.mount("/proc", place, "", sys.MS_BIND | sys.MS_REC)
        return
    if root.privileged:
        return
    for name in _READ_ONLY_PROC:
        path = f"{place}/{name}"
        with contextlib.suppress(OSError):
            sys.mount(path, path, "", sys.MS_BIND)
            flags = sys.MS_BIND | sys.MS_REMOUNT | sys.MS_RDONLY
            sys.mount("", path, "", flags | _PROC_FLAGS)
    for name in _MASKED_PROC.split():
        _mask(f"{place}/{name}")


def _mask(path: str) -> None:
    with contextlib.suppress(OSError):  # not on this kernel
        if os.path.isdir(path):
            sys.mount("masked", path, "", sys.MS_BIND)
            set_read_only(path)
        elif os.path.exists(path):
            sys.mount("/dev/null", path, "", sys.MS_BIND)


def _sys(place: str, root: Root) -> None:
    os.makedirs(place, exist_ok=True)
    with contextlib.suppress(OSError):
        sys.mount("/sys", place, "", sys.MS_BIND | sys.MS_REC)
        if root.privileged:
            return
        for name in _MASKED_SYS:
            _mask(f"{place}/{name}")
        set_read_only(place)
        with contextlib.suppress(OSError):  # before Linux 5.12 it is still as it was
            control = f"{place}/fs/cgroup"
            if os.access(control, os.W_OK):
                sys.mount("masked", control, "", sys.MS_BIND)
                set_read_only(control)


def _dev(place: str, root: Root) -> None:
    os.makedirs(place, exist_ok=True)
    sys.mount("tmpfs", place, "tmpfs", sys.MS_NOSUID, f"mode=755,size={_DEV_SIZE}")
    for name in (*_DEVICES, *(os.path.relpath(path, "/dev") for path in root.devices)):
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
