"""Limits of open files and processes (RLIMIT_*): what is left, and how to raise them.

Imports nothing heavy, since it is asked before the shim is started.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import suppress

from trainyard.schema.errors import TrainyardError

LEAST_FILES, GOOD_FILES = 128, 1024
"""Open files with which a small job runs; and with which nothing is short of them."""
LEAST_PROCESSES, GOOD_PROCESSES = 32, 256
"""Processes and threads that may still be started, likewise."""
_MOST_FILES = 65536
_FORK_ERRNOS = (errno.EAGAIN, errno.ENOMEM)
_FILE_ERRNOS = (errno.EMFILE, errno.ENFILE)
RAISE_FILES = (
    "raise it with `ulimit -n 4096` (for good: nofile in /etc/security/limits.conf, or "
    "LimitNOFILE= of a systemd unit)"
)
RAISE_PROCESSES = (
    "raise it with `ulimit -u 4096` (for good: nproc in /etc/security/limits.conf, or TasksMax= "
    "and LimitNPROC= of a systemd unit), or end other programs of this user"
)


class LimitTooLow(TrainyardError):
    """A resource limit of the process leaves too little for a cluster."""


def check_rlimits() -> None:
    """Raise LimitTooLow where no cluster can run, before any of it has begun."""
    files = max_open_files()
    if files is not None and files < LEAST_FILES:
        raise LimitTooLow(
            f"the limit of open files (RLIMIT_NOFILE) is {files}, and a cluster needs "
            f"{LEAST_FILES} at least: {RAISE_FILES}"
        )
    left = processes_left()
    if left is not None and left < LEAST_PROCESSES:
        limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        raise LimitTooLow(
            f"the limit of processes (RLIMIT_NPROC) is {limit}, of which {max(left, 0)} are left; "
            f"a cluster needs {LEAST_PROCESSES} at least: {RAISE_PROCESSES}"
        )


def max_open_files() -> int | None:
    """How many files may be open at most, once the limit is raised as far as it goes."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def raise_open_files() -> None:
    """Have as many open files as the system permits, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def processes_left() -> int | None:
    """Processes and threads that this user may still start; None where nothing limits them."""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if limit == resource.RLIM_INFINITY or os.geteuid() == 0:  # root is exempt
        return None
    if limit > 10 * GOOD_PROCESSES:  # not worth a look at every process
        return limit
    return limit - sum(_threads_of(os.geteuid()))


def _threads_of(user: int) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == user:
                    yield len(os.listdir(f"/proc/{name}/task"))


def explain_limit_error(failure: OSError) -> LimitTooLow | None:
    """What to do about an error that a limit has caused; None of any other."""
    if failure.errno in _FILE_ERRNOS:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return LimitTooLow(f"no more files can be opened; the limit is {soft}: {RAISE_FILES}")
    if failure.errno in _FORK_ERRNOS:
        soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        limit = "" if soft == resource.RLIM_INFINITY else f" (RLIMIT_NPROC is {soft})"
        return LimitTooLow(f"no more processes can be started{limit}: {RAISE_PROCESSES}")
    return None
