"""What a pod's program cannot do: its user namespace, capabilities, system calls, keys, processes.

The last steps of a process before it becomes the user's program (or a command beside it), in the
container's namespaces and with its root already. The pod's user namespace is entered last: all
that was made before, mounts above all, belongs to the one outside, where the pod has no say.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource

from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.processes import seccomp
from trainyard.podruntime.protocol import Program

# What container runtimes grant by default (without MKNOD), and IPC_LOCK, which RDMA needs:
# CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE NET_RAW IPC_LOCK
# SYS_CHROOT AUDIT_WRITE SETFCAP.
DEFAULT_CAPABILITIES = sum(1 << n for n in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 14, 18, 29, 31))
# What may be added and means something in a user namespace of one's own: DAC_READ_SEARCH
# NET_BROADCAST NET_ADMIN IPC_OWNER SYS_PTRACE. The kernel asks for any other in the first one.
_GRANTABLE_INSIDE = DEFAULT_CAPABILITIES | sum(1 << n for n in (2, 11, 12, 15, 19))
_IPC_LOCK = 1 << 14
_PROCESS_NUMBERS = "/proc/sys/kernel/pid_max"
_PROCESS_NUMBERS_SINCE = (6, 14)
"""Of Linux; before, the file is about the whole machine."""
_RESERVED_NUMBERS = 300  # of kernel/pid.c: those below are not given out a second time


# Decision 73.
def enters_user_namespace(program: Program, kind: str) -> bool:
    """Whether nothing was asked for that cannot be had there; ``kind`` is the isolation."""
    if kind == "rootless":
        return True  # what is asked for cannot be had outside of it either
    return not program.privileged and not program.capabilities & ~_GRANTABLE_INSIDE


def confine(program: Program, kind: str, user_namespace: int, last_capability: int) -> None:
    """Bind this process and its children, for good, to what ``program`` may do.

    ``user_namespace`` is a descriptor, or -1 where the pod has none. Afterwards it can still change
    its user. Raises OSError: a program that cannot be confined must not start.
    """
    with contextlib.suppress(OSError):  # where there are no keys there is nothing to leave
        sys.join_new_keyring()
    if kind == "root" and not program.dropped & _IPC_LOCK:
        # In a user namespace the limit counts, whatever the capability.
        with contextlib.suppress(OSError, ValueError):
            infinite = resource.RLIM_INFINITY
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (infinite, infinite))
    if user_namespace >= 0 and enters_user_namespace(program, kind):
        sys.setns(user_namespace, sys.CLONE_NEWUSER)
        _limit_processes(program.processes)
        sys.die_with_parent()
    if program.no_new_privileges:
        sys.prctl(sys.PR_SET_NO_NEW_PRIVS, 1)
    if kind != "plain" and not program.privileged:
        granted = program.capabilities if kind == "root" else 0
        keep = (DEFAULT_CAPABILITIES & ~program.dropped) | granted
        sys.bound_capabilities(keep, last_capability)
    if not program.privileged and not program.unconfined:
        _filter_calls(program, kind)


def _filter_calls(program: Program, kind: str) -> None:
    # Decision 74.
    instructions = seccomp.profile(program.capabilities if kind == "root" else 0)
    if not instructions:
        return
    try:
        sys.filter_calls(instructions)
    except PermissionError:
        # Only by giving up new privileges, and with them sudo, for which nobody has asked.
        if kind != "plain":
            raise


# Decision 75.
def limit_process_numbers(number: int) -> None:
    """In the process namespace of this process, which is new; before its root is."""
    if not number or _linux_version() < _PROCESS_NUMBERS_SINCE:
        return
    with contextlib.suppress(OSError):  # a text file of Python's takes ten times as long
        fd = os.open(_PROCESS_NUMBERS, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"%d" % (number + _RESERVED_NUMBERS))
        finally:
            os.close(fd)


def has_process_numbers() -> bool:
    """Whether each process namespace has numbers of its own to give."""
    return _linux_version() >= _PROCESS_NUMBERS_SINCE and os.access(_PROCESS_NUMBERS, os.W_OK)


def _limit_processes(number: int) -> None:
    """Of this user in this user namespace, which is the pod's; root's are not counted so.

    Before Linux 5.14 the user's processes on the whole machine would be.
    """
    if number and _linux_version() >= (5, 14):
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        limit = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))


@functools.cache
def _linux_version() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(filter(str.isdigit, minor)) or 0)
