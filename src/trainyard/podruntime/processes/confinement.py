"""What a pod's program cannot do: user namespace, capabilities, system calls, keys, processes.

These are the last steps before a process becomes the user's program (or a command beside it); it
has the container's namespaces and root already. The pod's user namespace comes last, so that
everything made before, mounts above all, belongs to the namespace outside, where the pod has no
say.
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
# What can be added and has a meaning inside a pod's user namespace: DAC_READ_SEARCH
# NET_BROADCAST NET_ADMIN IPC_OWNER SYS_PTRACE. Any other counts in the first one only.
_GRANTABLE_INSIDE = DEFAULT_CAPABILITIES | sum(1 << n for n in (2, 11, 12, 15, 19))
_IPC_LOCK = 1 << 14
_PROCESS_NUMBERS = "/proc/sys/kernel/pid_max"
_PROCESS_NUMBERS_SINCE = (6, 14)
"""Linux version from which the file limits its own namespace; before, the whole machine."""
_RESERVED_NUMBERS = 300  # kernel/pid.c never gives numbers below this out a second time


# Most programs run inside the pod's user namespace; what cannot work there stays outside (73).
def enters_user_namespace(program: Program, kind: str) -> bool:
    """Whether all that ``program`` asks for can be had inside; ``kind`` is the isolation."""
    if kind == "rootless":
        return True  # without root it cannot be had outside either
    return not program.privileged and not program.capabilities & ~_GRANTABLE_INSIDE


def confine(program: Program, kind: str, user_namespace: int, last_capability: int) -> None:
    """Confine this process and its children, for good, to what ``program`` may do.

    ``user_namespace`` is a descriptor, -1 where the pod has none. The process can still change its
    user afterwards. Raises OSError: a program that cannot be confined must not start.
    """
    with contextlib.suppress(OSError):  # a kernel without keyrings
        sys.join_new_keyring()
    if kind == "root" and not program.dropped & _IPC_LOCK:
        # In a user namespace this limit counts, whatever the capability.
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
    # A list of what is denied, not of what is allowed (decision 74).
    instructions = seccomp.profile(program.capabilities if kind == "root" else 0)
    if not instructions:
        return
    try:
        sys.filter_calls(instructions)
    except PermissionError:
        # It would need no_new_privs, and would break sudo, for which nobody has asked.
        if kind != "plain":
            raise


# How many processes a pod may have, where no control group counts them (decision 75).
def limit_process_numbers(number: int) -> None:
    """Limit the process ids of this new process namespace; before the root changes."""
    if not number or _linux_version() < _PROCESS_NUMBERS_SINCE:
        return
    with contextlib.suppress(OSError):
        fd = os.open(_PROCESS_NUMBERS, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"%d" % (number + _RESERVED_NUMBERS))
        finally:
            os.close(fd)


def has_process_numbers() -> bool:
    """Whether the limit of process ids counts for each process namespace alone."""
    return _linux_version() >= _PROCESS_NUMBERS_SINCE and os.access(_PROCESS_NUMBERS, os.W_OK)


def _limit_processes(number: int) -> None:
    """Limit this user's processes in the pod's user namespace; root's are not counted.

    Before Linux 5.14 the limit would count the user's processes on the whole machine.
    """
    if number and _linux_version() >= (5, 14):
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        limit = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))


@functools.cache
def _linux_version() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(filter(str.isdigit, minor)) or 0)
