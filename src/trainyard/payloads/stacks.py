"""Asks the observers of all processes in this pod for their stacks; prints one JSON line for each.

One that does not answer is stopped, or holds its interpreter's lock: then the line has its state.
Needs the standard library of Python 3.8, and runs as an argument of it (``python3 -IS -c``).
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

PREFIX = "@trainyard-observer-"
SECONDS = 5.0
"""How long one may take to answer: it looks each second."""


def listening() -> list[int]:
    """The processes in this network namespace that can be asked."""
    # https://man7.org/linux/man-pages/man5/proc_net_unix.5.html: the path comes last.
    lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()
    names = {line.rpartition(" ")[2] for line in lines}
    return sorted(int(name[len(PREFIX) :]) for name in names if name.startswith(PREFIX))


def is_of(pid: int, pod: str) -> bool:
    """Whether a process is the pod's: without namespaces there are those of others too."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"pod={pod}".encode() in environment.split(b"TRAINYARD_OBSERVE=")[-1].split(b"\0")[0]


def ask(pid: int) -> str:
    """What its observer says; raises OSError where it says nothing."""
    with socket.socket(socket.AF_UNIX) as end:
        end.settimeout(SECONDS)
        end.connect(f"\0{PREFIX[1:]}{pid}")
        parts: list[bytes] = []
        while True:
            part = end.recv(65536)
            if not part:
                return b"".join(parts).decode()
            parts.append(part)


def state_of(pid: int) -> str:
    """What the kernel calls the state of a process: R, S, D, T …; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def main(pod: str) -> None:
    """Ask all of them."""
    for pid in listening():
        if pid == os.getpid() or not is_of(pid, pod):
            continue
        try:
            told = json.loads(ask(pid))
        except (OSError, ValueError):
            told = {"state": state_of(pid)}
        print(json.dumps(dict(told, pid=pid)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
