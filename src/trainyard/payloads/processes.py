"""The processes of one replica: their tree, and the part that each has in the training.

Parts are derived from ``/proc`` alone, because nothing else shows what a user's command starts.
Mounted into the user's image: standard library, Python 3.8.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NamedTuple

OWN_FOLDER = os.fsencode(Path(__file__).parent)
SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox")
OURS, CONNECTION, CARRIER = "ours", "connection", "carrier"
FORWARDER, SHELL, RANK = "forwarder", "shell", "rank"
"""Parts of a process: of the launch itself; what leads to ranks on other replicas, which it would
break off; between a launch and its ranks here; the same, but it signals them when one of them
fails; a shell that leaves signals to others; whatever else there is, so a rank, or a launcher that
passes signals on."""
PARTS = {
    b"ssh": CONNECTION,
    b"pdsh": CONNECTION,
    b"pdsh.bin": CONNECTION,
    b"colossalai": CONNECTION,
    b"deepspeed": CARRIER,
    b"deepspeed.pt": CARRIER,
    b"ds": CARRIER,
    b"deepspeed.launcher.runner": CARRIER,
    b"deepspeed.launcher.launch": FORWARDER,
}
"""By program or module."""
OUR_PARTS = {
    b"minder.py": OURS,
    b"launch.py": OURS,
    b"rank.py": CARRIER,
    b"colossalai_run.py": CONNECTION,
}
AGENT_REQUEST = b"trainyard-minder"
"""What the launch asks sshd for."""


class Process(NamedTuple):
    """One process; ``started`` (clock ticks since boot) tells it from others of its number."""

    pid: int
    started: int
    parent: int
    is_dead: bool
    """It has ended, and waits for its parent."""


def read(pid: int) -> Process | None:
    """What the kernel tells of a process; None if there is none."""
    try:
        # https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html: the name may hold anything.
        fields = Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return Process(pid, int(fields[19]), int(fields[1]), fields[0] in (b"Z", b"X"))


def all_processes() -> dict[int, Process]:
    """Every process that we can see, by its number."""
    found = (read(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return {process.pid: process for process in found if process is not None}


def children_of(processes: dict[int, Process] | None = None) -> dict[int, list[int]]:
    """Parent to children."""
    tree: dict[int, list[int]] = {}
    for process in (all_processes() if processes is None else processes).values():
        tree.setdefault(process.parent, []).append(process.pid)
    return tree


def descendants(root: int, tree: dict[int, list[int]]) -> set[int]:
    """All processes below ``root``."""
    found: set[int] = set()
    waiting = [root]
    while waiting:
        for child in tree.get(waiting.pop(), []):
            found.add(child)
            waiting.append(child)
    return found


def arguments(pid: int) -> list[bytes]:
    """The command line; empty if the process has ended."""
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return []


def name_of(pid: int) -> str:
    """The name of the program; empty if the process has ended."""
    try:
        return Path("/proc", str(pid), "comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def catches_sigterm(pid: int) -> bool:
    """Whether the process has a handler of its own."""
    try:
        lines = Path("/proc", str(pid), "status").read_text(errors="replace").splitlines()
    except OSError:
        return False
    mask = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(mask, 16) & 1 << (signal.SIGTERM - 1))


def program_of(argv: list[bytes]) -> bytes:
    """What a command line runs: its first word or, behind a Python, the script or module."""
    words = iter(argv)
    first = next(words, b"")
    if not os.path.basename(first).startswith(b"python"):
        return first
    for word in words:
        if word in (b"-W", b"-X"):
            next(words, b"")
        elif word == b"-m":
            return next(words, b"")
        elif word == b"-c" or not word.startswith(b"-"):
            return word
    return first


def is_replica_agent(pid: int) -> bool:
    """Whether the process is a minder."""
    return program_of(arguments(pid)) == OWN_FOLDER + b"/minder.py"


def part(argv: list[bytes], name: str, run: Path) -> str:
    """The part of a process by its command line and name; ``run`` is the pod's private folder."""
    folder, _, program = program_of(argv).rpartition(b"/")
    if folder == OWN_FOLDER and program in OUR_PARTS:
        return OUR_PARTS[program]
    if name.startswith("sshd") or AGENT_REQUEST in argv or os.fsencode(run / "session") in argv:
        return OURS
    return PARTS.get(program, SHELL if name in SHELLS else RANK)


def part_of(pid: int, run: Path) -> str:
    """The part of a process; a shell that traps SIGTERM answers for what it runs."""
    found = part(arguments(pid), name_of(pid), run)
    return RANK if found == SHELL and catches_sigterm(pid) else found


def pipe_into(pid: int) -> str:
    """The pipe from which a process reads its input; empty if it is none."""
    return _pipe(pid, 0)


def pipes_out_of(pid: int) -> set[str]:
    """The pipes that a process writes its output into."""
    return {_pipe(pid, 1), _pipe(pid, 2)} - {""}


def _pipe(pid: int, descriptor: int) -> str:
    try:
        target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
    except OSError:
        return ""
    return target if target.startswith("pipe:") else ""
