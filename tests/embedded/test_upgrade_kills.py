"""`kill -9` in the middle of changes of version, up and down: no replica is lost, no count changes.

What is killed is the command, the cluster that goes, the one that comes, or the zygote; the pod
runtime and the replicas are what has to last.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.earlier_versions import DAY_26, NOW
from tests.embedded.command_line import until
from tests.embedded.lifecycle_yard import generic, pytorch, replicas, template
from tests.embedded.test_upgrade_matrix import WAITS, Machine, machine
from tests.tools import soak

__all__ = ["machine"]
KILLS = soak(12, 300)
LONGEST_PAUSE_SECONDS = 1.2
LASTS = ("trainyard-shim", "pod-init", "pod-spare", "egress-starter")
NAMES = ("running", "ranks", "paused")


def test_no_replica_is_lost_by_kills_in_the_middle_of_upgrades(machine: Machine) -> None:
    rng = random.Random(7)
    machine.use(DAY_26)
    machine.up()

    def pods(name: str) -> dict[str, object]:
        return template(["python3", "-c", WAITS], env={"JOB": name})

    machine.submit(
        generic("running", replicas("worker", 2, pods("running"))),
        pytorch("ranks", pods("ranks"), replicas=2),
        pytorch("paused", pods("paused"), runMode={"pause": {"enabled": True}}),
    )
    for name in ("running", "ranks"):
        machine.await_running(name, 2)
    machine.await_phase("paused", "Paused")
    before = {name: machine.state_of(name) for name in NAMES}
    for number in range(KILLS):
        version = (NOW, DAY_26)[number % 2]
        command = begin(machine, version)
        time.sleep(rng.uniform(0, LONGEST_PAUSE_SECONDS))
        kill_one(machine, rng)
        command.communicate()
        until(
            lambda: "the cluster is" in machine.run("up", *machine.options, code=None), "it is up"
        )
        assert {name: machine.state_of(name) for name in NAMES} == before, f"kill {number}"
    machine.run("resume", "paused")
    machine.await_phase("paused", "Running")
    (machine.data / "finish").touch()
    for name in NAMES:
        machine.end(name, "Succeeded")
        assert all(not task["restartCount"] for task in machine.status(name)["tasks"])


def begin(machine: Machine, version: str) -> subprocess.Popen[str]:
    """Start to change the version, in the way that it has for that."""
    machine.use(version)
    if version == NOW:
        return machine.start("restart")
    machine.kill_cluster()
    return machine.start("up", *machine.options)


def kill_one(machine: Machine, rng: random.Random) -> None:
    """One process that is neither a replica nor what holds it."""
    found = []
    for pid in machine.processes():
        with suppress(OSError):
            is_replica = b"JOB=" in Path(f"/proc/{pid}/environ").read_bytes()
            if not is_replica and Path(f"/proc/{pid}/comm").read_text().strip() not in LASTS:
                found.append(pid)
    if found:
        with suppress(ProcessLookupError):
            os.kill(rng.choice(found), signal.SIGKILL)
