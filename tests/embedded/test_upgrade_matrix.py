"""Up and down between versions, under jobs in many states: no replica is lost, no count changes.

The versions are commits of this repository, as long as there are no releases. All of them speak the
wire version of the pod runtime that this one speaks. A few under a usual run, all with
TRAINYARD_SOAK=1.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.earlier_versions import DAY_25, DAY_26, MORE, NOW, sources_of
from tests.embedded.command_line import Object, until
from tests.embedded.lifecycle_yard import (
    CLAIM,
    Yard,
    condition,
    generic,
    manifest,
    pytorch,
    replicas,
    template,
)
from tests.tools import require, soak

ROUTES: Sequence[Sequence[str]] = [(DAY_25, NOW, DAY_26, NOW), (NOW, DAY_26, NOW)]
if soak(0, 1):
    EVERY = (*MORE, DAY_25, DAY_26)
    ROUTES = [
        *((old, NOW, old, NOW) for old in EVERY),
        *((NOW, old, NOW) for old in EVERY),
        (*EVERY, NOW, *reversed(EVERY), NOW),
    ]
WAITS = "import os, time\nwhile not os.path.exists('/data/finish'): time.sleep(0.1)\n"
HANGS = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
while os.environ["RANK"] == "1" and not os.path.exists("/data/finish"): time.sleep(0.1)
dist.all_reduce(torch.ones(1))
"""


COUNTED = ("phase", "tasks", "aggregate", "attempts", "startTime", "backoffCount")


class State(NamedTuple):
    """What must not change."""

    counts: Object
    conditions: list[tuple[str, str, str]]
    replicas: set[int]
    pods: dict[str, str]


class Machine(Yard):
    """One state folder, and every version of the program on it."""

    def __init__(self, folder: Path, sources: Path) -> None:
        super().__init__(folder)
        self._sources = sources
        self.options = ("--volume", f"{CLAIM}={self.data}", "--resource", "nvidia.com/gpu=1")

    def use(self, version: str) -> None:
        """Every command is that of the version from now on."""
        self.environment["PYTHONPATH"] = str(sources_of(version, self._sources))

    def change(self, version: str) -> None:
        """Put the version under the jobs: with `restart`, or as it was done before."""
        self.use(version)
        if version == NOW:
            self.run("restart")
            return
        self.kill_cluster()
        self.up()

    def kill_cluster(self) -> None:
        """End it as a power cut would, but for its pod runtime."""
        pid = int(json.loads((self.state / "cluster.json").read_text())["pid"])
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        until(lambda: "no cluster is up" in self.run("status", code=None), "it is gone")

    def up(self) -> None:
        self.run("up", *self.options)

    def await_running(self, job: str, count: int, text: str = "") -> None:
        """Wait until the job has so many processes with the text in their command lines."""
        self.await_phase(job, "Running")
        until(lambda: len(self.with_environment(text, JOB=job)) >= count, f"{job} has {count}")

    def settled(self, jobs: Sequence[str]) -> dict[str, State]:
        """The state of jobs, once what their launchers started to begin with has ended."""
        found = {name: self.state_of(name) for name in jobs}
        while True:
            time.sleep(2)
            before, found = found, {name: self.state_of(name) for name in jobs}
            if found == before:
                return found

    def state_of(self, job: str) -> State:
        status = self.status(job)
        return State(
            {name: status.get(name) for name in COUNTED},
            sorted(
                (each["type"], each["status"], each.get("lastTransitionTime", ""))
                for each in status["conditions"]
            ),
            set(self.with_environment("", JOB=job)),
            self.uids(job),
        )


def jobs() -> list[Object]:
    """One for each state that a job may be in while its cluster changes."""

    def pods(name: str, code: str = WAITS, **container: object) -> Object:
        return template(["python3", "-c", code], env={"JOB": name}, **container)

    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return [
        generic("running", replicas("worker", 2, pods("running"))),
        pytorch("ranks", pods("ranks"), replicas=2),
        pytorch("paused", pods("paused"), runMode={"pause": {"enabled": True}}),
        pytorch("holds", pods("holds", **gpu)),
        pytorch(
            "elastic",
            template(["/data/wait.py"], env={"JOB": "elastic"}),
            replicas=2,
            torchrunConfig={"enabled": True},
            elastic={"enabled": True, "minReplicas": 1, "maxReplicas": 3, "expectedReplicas": 2},
        ),
        pytorch(
            "hung",
            pods("hung", HANGS),
            replicas=2,
            runPolicy={"hang": {"afterSeconds": 5, "action": "Explain"}},
        ),
    ]


def launched_over_ssh() -> list[Object]:
    """The two kinds that take longest to start."""
    worker = {"replicas": 2, "restartPolicy": "OnFailure"}
    return [
        manifest(
            "DeepSpeedJob",
            "deepspeed",
            {
                "config": {"slotsPerWorker": 1, "run": {"python": ["/data/wait.py"]}},
                "worker": {**worker, "template": _worker("deepspeed")},
            },
        ),
        manifest(
            "ColossalAIJob",
            "colossalai",
            {
                "torchConfig": {"script": ["/data/wait.py"]},
                "replicaSpecs": [
                    {"type": "launcher", "template": {}},
                    {"type": "worker", "replicas": 2, "template": _worker("colossalai")},
                ],
            },
        ),
    ]


def _worker(job: str) -> Object:
    made = template([], env={"JOB": job})
    (main,) = made["spec"]["containers"]
    del main["command"]
    main["name"] = "worker"
    return made


def queued() -> Object:
    """It waits for what the job `holds` has."""
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return pytorch("queued", template(["true"], env={"JOB": "queued"}, **gpu))


@pytest.fixture
def machine(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    sources = tmp_path_factory.getbasetemp() / "versions"
    made = Machine(tmp_path, sources)
    (made.data / "wait.py").write_text(WAITS)
    try:
        yield made
    finally:
        made.use(NOW)
        made.run("down", code=None)
        made.kill_everything()


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: "-".join(each[:8] for each in r))
def test_jobs_outlive_every_change_of_the_version(machine: Machine, route: Sequence[str]) -> None:
    require("torchrun")
    machine.use(route[0])
    machine.up()
    launched = launched_over_ssh() if soak(0, 1) else []
    machine.submit(*jobs(), *launched)
    for job in launched:
        machine.await_running(job["metadata"]["name"], 2, "wait.py")
    for name, count in (("running", 2), ("ranks", 2), ("holds", 1), ("elastic", 4), ("hung", 2)):
        machine.await_running(name, count)
    machine.submit(queued())
    machine.await_phase("paused", "Paused")
    machine.await_phase("queued", "Pending")
    until(lambda: condition(machine.status("hung"), "Hung").get("status") == "True", "it hangs")
    names = [job["metadata"]["name"] for job in (*jobs(), *launched, queued())]
    before = machine.settled(names)
    for number, version in enumerate(route[1:]):
        machine.change(version)
        machine.submit(pytorch(f"probe-{number}", template(["true"])))
        machine.end(f"probe-{number}", "Succeeded")
        assert {name: machine.state_of(name) for name in names} == before
        assert condition(machine.status("hung"), "Hung").get("status") == "True"
    machine.run("resume", "paused")
    machine.await_phase("paused", "Running")
    (machine.data / "finish").touch()
    for name in names:
        machine.end(name, "Succeeded")
        assert all(not task["restartCount"] for task in machine.status(name)["tasks"])
