"""The kernel's file systems in a pod's root: /proc, /sys and /dev.

What reveals or changes the machine is hidden or read-only, by the lists that container runtimes
share (https://github.com/moby/moby/blob/master/oci/defaults.go). A privileged container sees
everything.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping

from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.protocol import Root

_TOPS = (b"/proc", b"/sys", b"/dev")
_BENEATH = (b"/proc/", b"/sys/", b"/dev/")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
# Beyond their lists, since a pod's root is root for files: driver settings, pages of memory.
_READ_ONLY_PROC = ("bus", "driver", "fs", "irq", "sys", "sysrq-trigger")
_MASKED = "interrupts kcore keys latency_stats sched_debug timer_list timer_stats"
_MASKED_FILES = [*_MASKED.split(), "kpagecgroup", "kpagecount", "kpageflags"]
_MASKED_PROC = ("/proc/acpi", "/proc/asound", "/proc/scsi")
_MASKED_SYS = ("/sys/firmware", "/sys/devices/virtual/powercap")
_PROC_FLAGS = sys.MS_NOSUID | sys.MS_NODEV | sys.MS_NOEXEC
_DEV_SIZE = 1 << 20


def is_kernel_path(path: bytes) -> bool:
    """Whether a path is, or lies in, /proc, /sys or /dev."""
    return path.startswith(_BENEATH) or path in _TOPS


def prepare_dev(place: str) -> None:
    """Mount /dev beneath ``place``, as unprivileged containers see it."""
    _dev(f"{place}/dev")


def prepare_proc(place: str, empty: str) -> None:
    """Likewise /proc; ``empty`` is a read-only mount of an empty folder."""
    _proc(f"{place}/proc", is_restricted=True)
    for name in _MASKED_FILES:
        with contextlib.suppress(OSError):  # not on this kernel
            sys.mount("/dev/null", f"{place}/proc/{name}", "", sys.MS_BIND)
    _mask(_MASKED_PROC, place, empty)


def prepare_sys(place: str, empty: str) -> None:
    """Likewise /sys, which is the same for all pods."""
    _sys(f"{place}/sys")
    _mask(_MASKED_SYS, place, empty)
    with contextlib.suppress(OSError):
        set_read_only(f"{place}/sys")
        if os.access(f"{place}/sys/fs/cgroup", os.W_OK):  # before Linux 5.12
            sys.mount(empty, f"{place}/sys/fs/cgroup", "", sys.MS_BIND)


def _mask(paths: Iterable[str], place: str, empty: str) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            sys.mount(empty, f"{place}{path}", "", sys.MS_BIND)


def install(place: str, prepared: Mapping[str, str], root: Root) -> None:
    """Put all three beneath ``place``: the prepared ones, or unrestricted ones if privileged."""
    if root.privileged:
        _proc(f"{place}/proc", is_restricted=False)
        _sys(f"{place}/sys")
        _dev(f"{place}/dev")
    else:
        for name, source in prepared.items():
            if not os.path.isdir(f"{place}/{name}"):
                os.mkdir(f"{place}/{name}")
            with contextlib.suppress(OSError) if name == "sys" else contextlib.nullcontext():
                sys.mount(source, f"{place}/{name}", "", sys.MS_MOVE)
    _add_devices(f"{place}/dev", root)


def set_read_only(place: str) -> None:
    """Make the mount at ``place`` read-only, and those beneath it as far as the kernel can."""
    try:
        sys.make_read_only(place)
    except OSError:  # before Linux 5.12: this mount only, not those beneath it
        sys.mount("", place, "", sys.MS_BIND | sys.MS_REMOUNT | sys.MS_RDONLY)


def _proc(place: str, *, is_restricted: bool) -> None:
    os.makedirs(place, exist_ok=True)
    try:
        sys.mount("proc", place, "proc", _PROC_FLAGS)
    except OSError:  # a host that masks parts of /proc forbids a new one
        sys.mount("/proc", place, "", sys.MS_BIND | sys.MS_REC)
        return
    for name in _READ_ONLY_PROC if is_restricted else ():
        path = f"{place}/{name}"
        with contextlib.suppress(OSError):
            sys.mount(path, path, "", sys.MS_BIND)
            flags = sys.MS_BIND | sys.MS_REMOUNT | sys.MS_RDONLY
            sys.mount("", path, "", flags | _PROC_FLAGS)


def _sys(place: str) -> None:
    os.makedirs(place, exist_ok=True)
    with contextlib.suppress(OSError):
        sys.mount("/sys", place, "", sys.MS_BIND | sys.MS_REC)


def _dev(place: str) -> None:
    os.makedirs(place, exist_ok=True)
    sys.mount("tmpfs", place, "tmpfs", sys.MS_NOSUID, f"mode=755,size={_DEV_SIZE}")
    for name in _DEVICES:
        _device(name, place)
    for name, link in _DEVICE_LINKS.items():
        os.symlink(link, f"{place}/{name}")
    os.mkdir(f"{place}/pts")
    os.mkdir(f"{place}/shm")
    os.mkdir(f"{place}/mqueue")
    options = "newinstance,ptmxmode=0666,mode=620"
    sys.mount("devpts", f"{place}/pts", "devpts", sys.MS_NOSUID | sys.MS_NOEXEC, options)
    flags = sys.MS_NOSUID | sys.MS_NODEV
    sys.mount("tmpfs", f"{place}/shm", "tmpfs", flags, "mode=1777")


def _add_devices(place: str, root: Root) -> None:
    for path in root.devices:
        name = os.path.relpath(path, "/dev")
        os.makedirs(os.path.dirname(f"{place}/{name}"), exist_ok=True)
        if os.path.isdir(path):
            os.makedirs(f"{place}/{name}", exist_ok=True)
            sys.mount(path, f"{place}/{name}", "", sys.MS_BIND)
        elif os.path.exists(path):
            _device(name, place)


def _device(name: str, place: str) -> None:
    target = f"{place}/{name}"
    os.mknod(target)
    try:
        sys.mount(f"/dev/{name}", target, "", sys.MS_BIND)
    except FileNotFoundError:  # not on this host
        os.unlink(target)
