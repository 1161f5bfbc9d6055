"""Asks the observers of all processes in this pod for their stacks; prints one JSON line for each.

A process that does not answer is stopped, or holds its interpreter's lock. Its line then has its
state, and the stacks that py-spy reads, if that is installed. The same goes for Python processes
without an observer. Runs as an argument of Python (``python3 -IS -c``): standard library,
Python 3.8.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

PREFIX = "@trainyard-observer-"
OURS = "trainyard-observer"
PY_SPY_SECONDS, TRIES = 20.0, 3
SECONDS = 5.0
"""How long one may take to answer: it looks each second."""


def observed_processes() -> list[int]:
    """The processes in this network namespace that can be asked."""
    # https://man7.org/linux/man-pages/man5/proc_net_unix.5.html: the path comes last.
    lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()
    names = {line.rpartition(" ")[2] for line in lines}
    return sorted(int(name[len(PREFIX) :]) for name in names if name.startswith(PREFIX))


def variables_of(pid: int) -> dict[str, str]:
    """What a process was started with; nothing if it is gone, or not ours to see."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(each.split("=", 1) for each in text.split("\0") if "=" in each)


def rank_of(pid: int) -> int:
    """As its environment has it; -1 without."""
    text = variables_of(pid).get("RANK", "")
    return int(text) if text.isdecimal() else -1


def unobserved_ranks(observed: list[int]) -> list[int]:
    """The other Python processes of this pod that may be ranks: with a RANK, or, where nobody is
    observed, all. What a rank has started is none."""
    host = os.environ.get("HOSTNAME")
    found = []
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()):
        if pid in observed or pid == os.getpid() or not _is_python(pid):
            continue
        parent, rank = int((stat_fields(pid) or ["", "0"])[1]), rank_of(pid)
        is_child = rank >= 0 and _is_python(parent) and rank_of(parent) == rank
        if (
            not is_child
            and (rank >= 0 or not observed)
            and variables_of(pid).get("HOSTNAME") == host
        ):
            found.append(pid)
    return found


def _is_python(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
    except OSError:
        return False


def dump_by_py_spy(pid: int, spy: str) -> dict[str, object]:
    """What py-spy says of a process, which need not go on for it; or why it says nothing."""
    program = spy if os.access(spy, os.X_OK) else shutil.which("py-spy")
    if program is None:
        return {"problem": "missing"}
    command = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    problem = ""
    for _ in range(TRIES):  # what it reads may change meanwhile
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PY_SPY_SECONDS
            )
            if done.returncode == 0:
                return {"threads": _threads(pid, json.loads(done.stdout))}
            problem = (done.stderr.decode(errors="replace").strip().splitlines() or [""])[-1]
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            problem = str(error)
    return {"problem": problem[:300] or "it failed"}


def _threads(pid: int, described: list[dict[str, Any]]) -> list[dict[str, object]]:
    """As an observer has them: the main thread first, frames as file, line and function."""
    return [
        {
            "name": each.get("thread_name") or "?",
            "frames": [[f["filename"], f["line"], f["name"]] for f in each["frames"]],
        }
        for each in sorted(described, key=lambda each: each.get("os_thread_id") != pid)
        if each.get("thread_name") != OURS
    ]


def is_in_pod(pid: int, pod: str) -> bool:
    """Whether a process is the pod's: without namespaces there are those of others too."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"pod={pod}".encode() in environment.split(b"TRAINYARD_OBSERVE=")[-1].split(b"\0")[0]


def ask_observer(pid: int) -> str:
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


def stat_fields(pid: int) -> list[str]:
    """What the kernel tells of a process, from its state (R, S, D, T …) on; nothing if it has
    ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def may_be_observed(pid: int) -> bool:
    """Whether its observer comes with a library that it may not have imported yet: not where
    Python is to look at no variables and import no `site` (-E, -I, -S)."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")[1:]
    except OSError:
        return False
    options = itertools.takewhile(lambda word: word.startswith("-") and word != "-c", words)
    isolated = any(set("EIS") & set(word) for word in options if not word.startswith("--"))
    return not isolated and "TRAINYARD_OBSERVE" in variables_of(pid)


def age_of(pid: int) -> float:
    """Seconds since a process has started; 0 if it has ended."""
    # https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html: field 22, in ticks since the boot.
    fields = stat_fields(pid)
    if len(fields) < 20:
        return 0.0
    now = float(Path("/proc/uptime").read_text().split()[0])
    return max(now - int(fields[19]) / os.sysconf("SC_CLK_TCK"), 0.0)


def describe_silent(pid: int, spy: str) -> dict[str, object]:
    """A process that did not answer for itself."""
    state = (stat_fields(pid) or [""])[0]
    return (
        dict(dump_by_py_spy(pid, spy), state=state, rank=rank_of(pid)) if state else {"state": ""}
    )


def main(pod: str, spy: str = "") -> None:
    """Ask all of them; `spy`: where py-spy may be, beside the PATH."""
    observed = [pid for pid in observed_processes() if pid != os.getpid() and is_in_pod(pid, pod)]
    for pid in observed:
        try:
            answer = json.loads(ask_observer(pid))
        except (OSError, ValueError):
            answer = describe_silent(pid, spy)
        print(json.dumps(dict(answer, pid=pid)), flush=True)
    for pid in unobserved_ranks(observed):
        answer = dict(describe_silent(pid, spy), pid=pid, observed=False)
        if may_be_observed(pid):
            answer["seconds"] = age_of(pid)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
