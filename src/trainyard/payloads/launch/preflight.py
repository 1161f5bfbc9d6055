"""Checks, before a launch on several replicas, that each has what the ranks need (decision 102).

As a program it runs in a replica's ssh session, with the environment that the ranks will have, and
prints what it found. The launch asks all replicas at once and compares the answers. Mounted beside
``launch.py``: standard library, Python 3.8.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # types are not shipped to pods
    from trainyard.payloads.payload_messages import PreflightAnswer, PreflightRequest

ANSWER_SECONDS = 30.0
"""A replica that does not answer in time is left to the launch itself."""
PACKAGES = ("torch", "deepspeed", "colossalai")
MOST_NAMED_HOSTS = 3
"""As many hosts that differ alike are named: an Event has room for 1 KiB."""
VERSIONS = """\
import json, sys
found = {"python": "%d.%d" % sys.version_info[:2]}
try:
    from importlib import metadata
except ImportError:
    sys.argv[1:] = []
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        found[name] = "none"
print(json.dumps(found))
"""


class ReplicasNotReady(Exception):
    """Replicas lack what the ranks need; none has it where that `is_permanent`."""

    def __init__(self, message: str, *, is_permanent: bool) -> None:
        super().__init__(message)
        self.is_permanent = is_permanent


def interpreter_or_program(program: str) -> str:
    """The interpreter that a script names in its first line; the program itself if it has none."""
    with open(program, "rb") as file:
        first = file.readline(4096)
    named = first[2:].strip().decode(errors="replace") if first.startswith(b"#!") else ""
    return named if named.startswith("/") and os.access(named, os.X_OK) else program


def inspect_replica(wanted: PreflightRequest) -> PreflightAnswer:
    """What this replica has and lacks."""
    missing = []
    folder, program, script = wanted["folder"], wanted["program"], wanted["script"]
    try:
        os.chdir(folder)
    except OSError:
        missing.append(f"the folder {folder}")
    path = shutil.which(program)
    if path is None:
        missing.append(program)
    if script and not os.path.exists(script):
        missing.append(script)
    gpus = [n for n in os.listdir("/dev") if n.startswith("nvidia") and n[6:].isdigit()]
    return {
        "missing": missing,
        "versions": versions(interpreter_or_program(path)) if path else {},
        "gpus": len(gpus),
    }


def versions(python: str) -> dict[str, str]:
    """Of Python, and of the packages that must be the same everywhere; none if it cannot tell."""
    done = subprocess.run([python, "-c", VERSIONS, *PACKAGES], stdout=subprocess.PIPE, check=False)
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        return {}


class PreflightQuery(threading.Thread):
    """Asks one replica, in a thread; `found` stays None without an answer in time."""

    def __init__(self, host: str, wanted: PreflightRequest) -> None:
        super().__init__(daemon=True, name=f"preflight of {host}")
        self.host = host
        self.found: PreflightAnswer | None = None
        encoded = base64.urlsafe_b64encode(json.dumps(wanted).encode()).decode()
        self.command = ["ssh", "-T", host, f"trainyard-check {encoded}"]

    def run(self) -> None:
        try:
            done = subprocess.run(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=ANSWER_SECONDS,
                check=False,
            )
            self.found = json.loads(done.stdout.splitlines()[-1])
        except (OSError, ValueError, IndexError, subprocess.SubprocessError):
            return


def describe_missing(found: dict[str, PreflightAnswer]) -> str:
    """``train.py on worker-1, worker-2; torchrun on worker-3``; "" if nothing is missing."""
    hosts_of: dict[str, list[str]] = {}
    for host, each in found.items():
        for what in each["missing"]:
            hosts_of.setdefault(what, []).append(host)
    return "; ".join(f"{what} on {', '.join(hosts)}" for what, hosts in hosts_of.items())


def is_nowhere(found: dict[str, PreflightAnswer]) -> bool:
    """Whether something is missing on every replica."""
    return bool(set.intersection(*(set(each["missing"]) for each in found.values())))


def name_hosts(hosts: list[str]) -> str:
    """``worker-0, worker-1, worker-2 and 5 more``."""
    more = f" and {len(hosts) - MOST_NAMED_HOSTS} more" if len(hosts) > MOST_NAMED_HOSTS else ""
    return f"{', '.join(hosts[:MOST_NAMED_HOSTS])}{more}"


def differences(found: dict[str, PreflightAnswer], slots: int) -> list[str]:
    """Versions that are not the same everywhere, and GPUs that are fewer than processes."""
    problems = []
    for name in ("python", *PACKAGES):
        hosts_of: dict[str, list[str]] = {}
        for host, each in found.items():
            if name in each["versions"]:
                hosts_of.setdefault(each["versions"][name], []).append(host)
        if len(hosts_of) > 1:
            parts = [f"{version} on {name_hosts(hosts)}" for version, hosts in hosts_of.items()]
            problems.append(f"{name} differs: {'; '.join(parts)}")
    short: dict[int, list[str]] = {}
    for host, each in found.items():
        if 0 < each["gpus"] < slots:
            short.setdefault(each["gpus"], []).append(host)
    for gpus, hosts in short.items():
        has = "has" if len(hosts) == 1 else "have"
        problems.append(f"{name_hosts(hosts)} {has} {gpus} GPUs for {slots} processes")
    return problems


def main() -> None:
    """Print what is here."""
    wanted: PreflightRequest = json.loads(base64.urlsafe_b64decode(sys.argv[1]))
    print(json.dumps(inspect_replica(wanted)), flush=True)


if __name__ == "__main__":
    main()
