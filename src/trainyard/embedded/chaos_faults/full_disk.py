"""A file system that can be filled up: a tmpfs that only one program and its children see.

It is a tmpfs in a mount namespace of its own, so the kernel takes it back with the last of them,
however they end, and no other file system is ever filled. It becomes full by a limit that is what
is used just now, and gets its own limit back.

`python -m trainyard.embedded.chaos_faults.full_disk own FOLDER PROGRAM ARGUMENT…` runs the program
with one at `FOLDER/volumes`, and removes FOLDER after it. Its first line is JSON: the `pid` of the
program, or the `error` why there is none. `… full PID PATH` makes it full while its input is open.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

from trainyard.embedded.chaos_faults.fault_process import enter_namespaces, fault_process
from trainyard.embedded.node.volumes import tree_removal
from trainyard.podruntime import isolation, syscalls

_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NODEV
_AGAIN_SECONDS = 0.1
"""Space that was freed in the meantime is taken away again this often."""
_SHARE = 0.5
"""The part of the free memory that the file system may hold."""
OWN_DISK_COMMAND = ("-m", __name__, "own")


class FillableDisk(NamedTuple):
    """Such a file system, as seen from outside (decision 322)."""

    pid: int
    """A process that has it."""
    path: Path
    """Where it is mounted for that."""

    def seen(self, path: Path) -> Path:
        """How others reach what lies at a path of that process."""
        return Path(f"/proc/{self.pid}/root{path}")

    def keep_full(self) -> AbstractAsyncContextManager[None]:
        """Full for the duration of the block; raises TrainyardError if that is impossible."""
        arguments = ("full", str(self.pid), str(self.path))
        return fault_process(
            __name__, *arguments, otherwise="cannot fill the file system of the claims"
        )


def run_with_own_disk(folder: str, *program: str) -> None:
    """See the module."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)  # the program decides when it ends
    if child := os.fork():
        os.waitpid(child, 0)
        tree_removal.remove(folder)  # only from outside: inside, something is mounted in it
        return
    try:
        _mount(f"{folder}/volumes")
    except OSError as error:
        text = f"{error.strerror or error}; it takes root, or user namespaces that may be made"
        print(json.dumps({"error": text}), flush=True)
        os._exit(1)
    print(json.dumps({"pid": os.getpid()}), flush=True)
    os.execv(program[0], program)  # without root this gives up what the namespace gave us


def _mount(path: str) -> None:
    os.makedirs(path, exist_ok=True)
    try:
        syscalls.unshare(syscalls.CLONE_NEWNS)
    except PermissionError:
        isolation.enter_user_namespace()
        syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("", "/", "", syscalls.MS_REC | syscalls.MS_SLAVE)
    size = int(_SHARE * _free_memory())
    syscalls.mount("tmpfs", path, "tmpfs", _FLAGS, f"size={size},mode=755")


def _free_memory() -> int:
    """In bytes, as the kernel estimates it."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def keep_full(pid: str, path: str) -> None:
    """See the module."""
    enter_namespaces(pid, "user", "mnt")
    found = os.statvfs(path)
    is_reported = False
    try:
        while not select.select([sys.stdin], [], [], _AGAIN_SECONDS if is_reported else 0)[0]:
            now = os.statvfs(path)
            used = max(now.f_blocks - now.f_bfree, 1)  # 0 would be no limit
            if now.f_bfree and not _limit(path, used * now.f_frsize):
                continue  # something was written since
            if not is_reported:
                print("full", flush=True)
                is_reported = True
    finally:
        _limit(path, found.f_blocks * found.f_frsize)


def _limit(path: str, size: int) -> bool:
    """Limit the size in bytes; returns False if more is in use."""
    try:
        syscalls.mount("", path, "", syscalls.MS_REMOUNT | _FLAGS, f"size={size}")
    except OSError:
        return False
    return True


if __name__ == "__main__":
    run_with_own_disk(*sys.argv[2:]) if sys.argv[1] == "own" else keep_full(*sys.argv[2:])
