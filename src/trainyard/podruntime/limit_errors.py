"""Which limit of this machine a system call ran into, and how to raise it."""

from __future__ import annotations

import contextlib
import errno
import os
import resource

_CGROUPS = "/sys/fs/cgroup"


def explain(error: BaseException) -> str:
    """The error's text, with the limit behind it, its value, and how to raise it."""
    text = str(error) or type(error).__name__
    if not isinstance(error, OSError):
        return text
    if error.errno is not None:
        text = text.removeprefix(f"[Errno {error.errno}] ")
    if error.errno == errno.EMFILE:
        return f"{text}: {_open_files()}"
    if error.errno == errno.ENFILE:
        return f"{text}: the whole machine has as many open as fs.file-max permits (sysctl)"
    if error.errno == errno.EAGAIN:
        return f"{text}: {_processes()}"
    if error.errno == errno.ENOSPC and text.startswith(("unshare", "clone")):
        return f"{text}: no more namespaces are permitted; raise user.max_*_namespaces (sysctl)"
    return text


def _open_files() -> str:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"the hard limit RLIMIT_NOFILE permits {hard} open files, and a cluster needs about ten "
        "for each container; raise it (ulimit -Hn, LimitNOFILE= of a systemd unit, --ulimit nofile "
        "of docker) and start the cluster anew"
    )


def _processes() -> str:
    found = []
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:
        found.append(
            f"RLIMIT_NPROC permits this user {soft} processes and threads in all (ulimit -u, "
            "LimitNPROC= of a systemd unit)"
        )
    if (group := _pids_limit()) is not None:
        found.append(
            f"the control group {group[0]} permits {group[1]} processes and threads (pids.max, "
            "TasksMax= of a systemd unit, --pids-limit of docker)"
        )
    found.append("kernel.pid_max and kernel.threads-max limit the whole machine (sysctl)")
    return "no more processes or threads are permitted; " + "; ".join(found)


def _pids_limit() -> tuple[str, int] | None:
    """The control group with the lowest limit, of this process's own and those above."""
    lowest: tuple[str, int] | None = None
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as lines:
        for line in lines:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controllers in ("", "pids"):
                while True:
                    folder = os.path.normpath(f"{_CGROUPS}/{controllers}/{path}")
                    with contextlib.suppress(OSError, ValueError):
                        with open(f"{folder}/pids.max") as file:
                            limit = int(file.read())
                        if lowest is None or limit < lowest[1]:
                            lowest = folder, limit
                    if path in ("", "/"):
                        break
                    path = os.path.dirname(path)
    return lowest
