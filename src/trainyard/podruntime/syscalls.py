"""Linux system calls that Python's standard library lacks.

They are also called in freshly cloned children. So everything is looked up at import time, and no
call releases the interpreter lock (``PyDLL``): between ``clone`` and ``exec`` there is only one
thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import signal
import sys
from collections.abc import Iterable

CLONE_PARENT = 0x00008000
_CLONE_VM = 0x00000100
_CLONE_INTO_CGROUP = 0x200000000
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_MOVE = 8192
MS_REC = 16384
MS_SLAVE = 1 << 19
MS_SHARED = 1 << 20
MNT_DETACH = 2

AT_FDCWD = -100
RESOLVE_NO_MAGICLINKS = 2
RESOLVE_NO_SYMLINKS = 4
RESOLVE_BENEATH = 8
RESOLVE_IN_ROOT = 16

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2

_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1
_CAPABILITY_VERSION_3 = 0x20080522
_SYS_OPENAT2 = 437
_SYS_MOUNT_SETATTR = 442
_SYS_CLONE3 = 435
_SECCOMP_MODE_FILTER = 2
_KEYCTL_JOIN_SESSION_KEYRING = 1
_KEYCTL_NUMBERS = {"x86_64": 250, "aarch64": 219, "ppc64le": 271, "riscv64": 219, "s390x": 280}
_CLONE_NUMBERS = {"x86_64": 56, "aarch64": 220, "ppc64le": 120, "riscv64": 220, "s390x": 120}
_PIVOT_NUMBERS = {"x86_64": 155, "aarch64": 41, "ppc64le": 203, "riscv64": 41, "s390x": 217}

_libc = ctypes.PyDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_machine = platform.machine()
_SYS_CLONE = _CLONE_NUMBERS.get(_machine, -1)
_SYS_PIVOT_ROOT = _PIVOT_NUMBERS.get(_machine, -1)
_SYS_KEYCTL = _KEYCTL_NUMBERS.get(_machine, -1)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def clone(flags: int) -> int:
    """Fork into the new namespaces named by ``flags``; returns 0 in the child, as ``fork`` does."""
    if _SYS_CLONE < 0:
        raise OSError(38, f"clone: not known for {_machine}")
    arguments = [flags | signal.SIGCHLD, 0]
    if _machine == "s390x":  # the one architecture that takes the stack first
        arguments.reverse()
    longs = [ctypes.c_long(value) for value in (*arguments, 0, 0, 0)]
    return _check(int(_syscall(ctypes.c_long(_SYS_CLONE), *longs)), "clone")


def clone_into(group: int, flags: int) -> int:
    """The same, into a control group (version 2, Linux 5.7); ``group`` is a descriptor of its
    folder.

    Joining it later would take a lock of the whole machine. The child's exit signal is the
    parent's: for use with CLONE_PARENT.
    """
    arguments = (ctypes.c_uint64 * 11)()  # struct clone_args
    arguments[0], arguments[10] = flags | _CLONE_INTO_CGROUP, group
    size = ctypes.c_size_t(ctypes.sizeof(arguments))
    result = _syscall(ctypes.c_long(_SYS_CLONE3), ctypes.byref(arguments), size)
    return _check(int(result), "clone3")


_idle_stack = mmap.mmap(-1, 1 << 16)
_IDLE_SECONDS = 10


def clone_idle(flags: int) -> int:
    """A child that only sleeps, in the new namespaces named by ``flags``; the caller kills it.

    It shares our memory instead of copying it and so never gets back to Python. It ends by itself
    after ten seconds, should we be killed. One at a time.
    """
    top = ctypes.addressof(ctypes.c_char.from_buffer(_idle_stack)) + len(_idle_stack)
    sleep = ctypes.cast(_libc.sleep, ctypes.c_void_p)
    all_flags = ctypes.c_int(flags | _CLONE_VM | signal.SIGCHLD)
    # Signal handlers would run in the child too, in our memory.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = _libc.clone(sleep, ctypes.c_void_p(top), all_flags, ctypes.c_void_p(_IDLE_SECONDS))
        return _check(pid, "clone")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


# Declared types make calls quicker, and starting a pod takes a hundred.
_mount, _unshare, _setns, _prctl = _libc.mount, _libc.unshare, _libc.setns, _libc.prctl
_mount.argtypes = (*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p)
_unshare.argtypes = (ctypes.c_int,)
_setns.argtypes = (ctypes.c_int,) * 2
_prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)


def unshare(flags: int) -> None:
    _check(_unshare(flags), "unshare")


def setns(fd: int, flags: int) -> None:
    _check(_setns(fd, flags), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2); raises OSError with both ends."""
    options = os.fsencode(data) if data else None
    if _mount(os.fsencode(source), os.fsencode(target), kind.encode(), flags, options) < 0:
        _check(-1, f"mount {kind or source} on {target}")


def umount(target: str) -> None:
    _check(_libc.umount2(os.fsencode(target), ctypes.c_int(MNT_DETACH)), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    arguments = (os.fsencode(new), os.fsencode(old))
    _check(int(_syscall(ctypes.c_long(_SYS_PIVOT_ROOT), *arguments)), "pivot_root")


def make_read_only(path: str) -> None:
    """Make the mount at ``path`` and all mounts beneath it read-only (Linux 5.12)."""
    attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY)  # struct mount_attr
    result = _syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(AT_FDCWD),
        os.fsencode(path),
        ctypes.c_uint(_AT_RECURSIVE),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    _check(int(result), f"mount_setattr {path}")


def openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    """Open ``path`` under the rules of ``resolve`` (``RESOLVE_…``, Linux 5.6)."""
    if "\0" in path:
        raise OSError(22, os.strerror(22), path)
    how = (ctypes.c_uint64 * 3)(flags, 0, resolve)  # struct open_how
    result = _syscall(
        ctypes.c_long(_SYS_OPENAT2),
        ctypes.c_int(folder),
        os.fsencode(path),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return int(result)


def set_hostname(name: str) -> None:
    encoded = name.encode()
    _check(_libc.sethostname(encoded, ctypes.c_size_t(len(encoded))), "sethostname")


def prctl(option: int, argument: int, second: int = 0) -> None:
    if _prctl(option, argument, second, 0, 0) < 0:
        _check(-1, f"prctl {option}")


_arguments: tuple[int, int] | None = None


def find_arguments() -> None:
    """Have ``set_process_name`` replace this process's arguments as well from now on."""
    global _arguments
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, proc(5)
    _arguments = (start, end) if 0 < start < end else None


def set_process_name(name: str) -> None:
    """What `ps` shows, in both forms; the short one has 15 bytes (PR_SET_NAME)."""
    if _arguments is not None:
        start, end = _arguments
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, name.encode(), min(len(name), end - start - 1))
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _prctl(PR_SET_NAME, ctypes.addressof(buffer), 0, 0, 0)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel send ``number`` to this process when the thread that forked it ends.

    A change of user or group clears this; ask again after one.
    """
    prctl(PR_SET_PDEATHSIG, number)


def bound_capabilities(keep: int, last: int) -> None:
    """Limit the capabilities of programs started from now on to the bits of ``keep``."""
    for number in range(last + 1):
        if not keep >> number & 1:
            prctl(PR_CAPBSET_DROP, number)


def limit_capabilities(keep: int) -> None:
    """Drop this process's capabilities except the bits of ``keep``; programs inherit none."""
    data = _capabilities()
    for index in range(2):
        word = keep >> (32 * index) & 0xFFFFFFFF
        data[3 * index] &= word
        data[3 * index + 1] &= word
        data[3 * index + 2] = 0
    _set_capabilities(data)


def keep_capabilities() -> None:
    """Let ``exec`` keep this process's capabilities, as it does for root (Linux 4.3)."""
    if os.geteuid() == 0:
        return
    data = _capabilities()
    permitted = data[1] | data[4] << 32
    data[2], data[5] = data[1], data[4]
    _set_capabilities(data)
    for number in range(permitted.bit_length()):
        if permitted >> number & 1:
            prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number)


def _capabilities() -> ctypes.Array[ctypes.c_uint32]:
    """Effective, permitted and inheritable capabilities: the low words, then the high ones."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    _check(_libc.capget(ctypes.byref(header), data), "capget")
    return data


def _set_capabilities(data: ctypes.Array[ctypes.c_uint32]) -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(ctypes.byref(header), data), "capset")


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_calls(instructions: bytes) -> None:
    """Have the kernel filter every system call of this process and its children, for good.

    Needs CAP_SYS_ADMIN in its user namespace, or no_new_privs.
    """
    program = _FilterProgram(len(instructions) // 8, instructions)
    result = _prctl(PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program), 0, 0)
    _check(result, "seccomp")


def join_new_keyring() -> None:
    """Replace the session keyring by an empty one."""
    join = [ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), *[ctypes.c_long(0)] * 4]
    _check(int(_syscall(ctypes.c_long(_SYS_KEYCTL), *join)), "keyctl")


def close_others(kept: set[int]) -> None:
    """Close all descriptors except ``kept`` and the standard ones."""
    last = 2
    for fd in sorted(kept):
        if fd > last:
            os.closerange(last + 1, fd)
            last = fd
    os.closerange(last + 1, os.sysconf("SC_OPEN_MAX"))


def _is_in(group: str) -> bool:
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as file:
        for line in file:
            if line.startswith("0::/") and len(line) > 5 and group.endswith(line[3:].rstrip()):
                return True
    return False


def join_cgroups(paths: Iterable[str]) -> None:
    """Move this process into control groups where it is not yet, as far as possible."""
    for path in paths:
        if _is_in(path):
            continue
        with contextlib.suppress(OSError), open(f"{path}/cgroup.procs", "w") as file:
            file.write("0")


def interpreter_command(module: str, *arguments: str) -> list[str]:
    """The command line of a fresh interpreter that runs ``main()`` of one of our modules.

    It is isolated: the caller's environment, folder and site packages have no say, nor a place in
    its memory. In its ``sys.argv`` the arguments begin at 2.
    """
    boot = f"import sys; sys.path.append(sys.argv[1]); from {module} import main; main()"
    return isolated_interpreter(boot, sources_folder(), *arguments)


def isolated_interpreter(boot: str, *arguments: str) -> list[str]:
    """The command line of such an interpreter that runs the code ``boot``."""
    return [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", boot, *arguments]


def sources_folder() -> str:
    """The folder from which our modules are imported."""
    package = __name__.partition(".")[0]
    folder = os.path.dirname(os.path.abspath(__file__))
    while os.path.basename(folder) != package:
        folder = os.path.dirname(folder)
    return os.path.dirname(folder)
