"""`kill -9` at random moments, of any process of a cluster that runs jobs of every kind.

Long jobs of the four kinds wait for a file; their own processes are killed too, so that they start
again and again. Short jobs, whose processes are left alone, come all the time: what becomes of them
follows from their policies, whatever else dies.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.command_line import CommandLine, Object, until
from tests.embedded.lifecycle_yard import ENDS, Yard
from tests.tools import require, soak
from trainyard.kinds.kind_registry import KINDS
from trainyard.payloads.processes import children_of, descendants

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="looks for what root leaves behind")

KILLS = soak(20, 200)
KILLS_BETWEEN_SHORT_JOBS = 5
LONGEST_PAUSE_SECONDS = 1.5
PATIENCE_SECONDS = 600.0
MANY = 10_000
WAIT = "import os, time\nwhile not os.path.exists('finish'): time.sleep(0.1)\n"
POLICY = {"policy": "OnFailure", "limit": MANY}
LONG = {
    "generic": "GenericJob",
    "pytorch": "PyTorchTrainingJob",
    "deepspeed": "DeepSpeedJob",
    "colossalai": "ColossalAIJob",
}
Process = tuple[int, str]
"""Its id, and when it was started, which tells it from a later one of the same id."""


def made(kind: str, name: str, spec: Object) -> Object:
    """A job."""
    return {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def template(container: str, **more: Any) -> Object:
    """A pod template with one container."""
    return {"spec": {"containers": [{"name": container, "image": "image", **more}]}}


def long_jobs() -> list[Object]:
    """One of each kind, with two replicas; they succeed once there is a file `finish`."""
    workers = {"replicas": 2, "restartPolicy": "OnFailure"}
    retry = {"backoffLimit": MANY}
    return [
        made(
            "GenericJob",
            "generic",
            {
                "replicaSpecs": [
                    {
                        **workers,
                        "type": "worker",
                        "restartPolicy": POLICY,
                        "template": template("main", command=["python3", "wait.py"]),
                    }
                ]
            },
        ),
        made(
            "PyTorchTrainingJob",
            "pytorch",
            {
                "torchrunConfig": {"enabled": True, "procPerNode": "2"},
                "runPolicy": retry,
                "replicaSpecs": [
                    {**workers, "type": "worker", "template": template("main", args=["wait.py"])}
                ],
            },
        ),
        made(
            "DeepSpeedJob",
            "deepspeed",
            {
                "config": {"slotsPerWorker": 1, "run": {"python": ["wait.py"]}},
                "runPolicy": retry,
                "worker": {**workers, "template": template("worker")},
            },
        ),
        made(
            "ColossalAIJob",
            "colossalai",
            {
                "torchConfig": {"script": ["wait.py"]},
                "replicaSpecs": [
                    {"type": "launcher", "restartPolicy": POLICY, "template": {}},
                    {"type": "worker", "replicas": 2, "template": template("worker")},
                ],
            },
        ),
    ]


def short_jobs(number: int) -> list[Object]:
    """One that succeeds, and one that spends its budget of two restarts and fails."""
    return [
        made(
            "GenericJob",
            f"{name}-{number}",
            {
                "replicaSpecs": [
                    {
                        "type": "worker",
                        "restartPolicy": {"policy": "OnFailure", "limit": 2},
                        "template": template(
                            "main",
                            command=["sh", "-c", script],
                            env=[{"name": "SHORT", "value": "yes"}],
                        ),
                    }
                ]
            },
        )
        for name, script in (("good", "sleep 0.2; exit 0"), ("bad", "sleep 0.1; exit 3"))
    ]


class Prey:
    """The processes of a cluster, and everything of it that was ever seen."""

    def __init__(self, yard: Yard, alone: CommandLine) -> None:
        self._yard, self._alone = yard, alone
        self.seen: dict[Process, str] = {}

    def look(self) -> dict[str, list[int]]:
        """What there is to kill, by its sort; notes all that is there."""
        cluster, tree = cluster_pid(self._yard), children_of()
        found: dict[str, list[int]] = {"cluster": [cluster] if cluster else []}
        # What outlives a killed cluster is not below it any more.
        roots = {pid for pid in (cluster, *self._shims()) if pid}
        below = {each for root in roots for each in descendants(root, tree)} | roots
        for pid in below:
            process, name = started(pid), name_of(pid)
            if process is None:
                continue
            self.seen[process] = name
            sort = SORTS.get(name, "in a pod")
            if pid != cluster and not is_short(pid, tree):
                found.setdefault(sort, []).append(pid)
        return found

    def _shims(self) -> list[int]:
        """Those that were seen before and live, although their cluster may not."""
        return [pid for (pid, at), _ in self.seen.items() if started(pid) == (pid, at)]

    def left(self) -> list[str]:
        """Processes that still live."""
        return [f"{name} {p[0]}" for p, name in self.seen.items() if started(p[0]) == p]


SORTS = {
    "trainyard-shim": "shim",
    "pod-zygote": "zygote",
    "trainyard-relay": "relay",
    "egress-relay": "relay",
    "egress-starter": "starter of relays",
    "pod-init": "first process",
}


def name_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def started(pid: int) -> Process | None:
    """The process, if it lives (a zombie does not)."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else (pid, fields[19])
    return None


def is_short(pid: int, tree: dict[int, list[int]]) -> bool:
    """Whether it belongs to a short job: its environment says so, or that of a child."""
    for each in (pid, *tree.get(pid, ())) if name_of(pid) == "pod-init" else (pid,):
        with suppress(OSError):
            if b"SHORT=yes\0" in Path(f"/proc/{each}/environ").read_bytes():
                return True
    return name_of(pid) == "pod-init" and not tree.get(pid)  # it may yet become one


def cluster_pid(line: CommandLine) -> int:
    """The process of the cluster that is up, or was killed; 0 if none."""
    with suppress(OSError, ValueError):
        pid = int(json.loads((line.state / "cluster.json").read_text())["pid"])
        return pid if started(pid) else 0
    return 0


def bring_up(yard: Yard) -> None:
    """Start the cluster again if it is not up; one that lost its shim ends by itself."""

    def is_up() -> bool:
        with suppress(OSError, HTTPException):
            return yard.api.request("GET", "/version")[0] == 200
        yard.run("up", code=None)
        return False

    until(is_up, "the cluster answers", PATIENCE_SECONDS)


def residue(*states: Path) -> dict[str, set[str]]:
    """What clusters with these state folders could leave on the machine, beside processes."""
    names = [sha256(os.path.realpath(state).encode()).hexdigest()[:12] for state in states]
    top = Path("/sys/fs/cgroup")
    groups = (path for name in names for path in top.glob(f"**/trainyard/{name}/*-*"))
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "links": set(os.listdir("/sys/class/net")),
        "mounts": {line.split()[4] for line in mounts},
        "groups": {str(path) for path in groups},
        "temporary": {str(p) for state in states for p in state.parent.glob("tmp/trainyard*")},
    }


@contextmanager
def clusters(folder: Path) -> Iterator[tuple[Yard, CommandLine]]:
    """A cluster in the background, and a command line for clusters of their own."""
    (folder / "alone").mkdir()
    yard, alone = Yard(folder), CommandLine(folder / "alone")
    for line in (yard, alone):
        (line.folder / "tmp").mkdir()
        line.environment["TMPDIR"] = str(line.folder / "tmp")
    try:
        yard.run("up")
        yield yard, alone
    finally:
        yard.run("down", code=None)
        for line in (yard, alone):
            line.kill_everything()


def kill_a_run(alone: CommandLine, rng: random.Random) -> None:
    """`trainyard run` with a cluster of its own, of which nothing may outlive it."""
    job = made(
        "GenericJob",
        "lonely",
        {
            "replicaSpecs": [
                {
                    "type": "worker",
                    "replicas": 2,
                    "template": template("main", command=["sh", "-c", "setsid sleep 987 & wait"]),
                }
            ]
        },
    )
    with alone.running("run", "-f", alone.manifest("lonely.yaml", job)) as run:
        time.sleep(rng.uniform(0, 3))
        family = descendants(run.pid, children_of()) | {run.pid}
        processes = [process for process in map(started, family) if process]
        os.kill(run.pid, signal.SIGKILL)
    until(lambda: not any(started(p[0]) == p for p in processes), "nothing of the run is left")


def create(yard: Yard, job: Object) -> None:
    """Create a job, for which the cluster may have to be brought up: it may just be going."""
    kind = KINDS[job["kind"]]
    path = f"/apis/{kind.group}/{kind.version}/namespaces/default/{kind.plural}"

    def is_there() -> bool:
        with suppress(OSError, HTTPException):
            code, answer = yard.api.request("POST", path, job)
            assert code in (201, 409), answer
            return True
        bring_up(yard)
        return False

    until(is_there, f"{job['metadata']['name']} is created", PATIENCE_SECONDS)


def status_of(yard: Yard, name: str) -> Object:
    """A job's status; empty where there is none yet, or no cluster."""
    with suppress(OSError, HTTPException):
        job = yard.api.job(name, LONG.get(name, "GenericJob"))
        assert job is not None, f"{name} is gone"
        return dict(job.get("status") or {})
    bring_up(yard)
    return {}


def end(yard: Yard, name: str) -> tuple[str, int]:
    """A job's phase once it is over, and the restarts that it was charged."""
    until(lambda: status_of(yard, name).get("phase") in ENDS, f"{name} ends", PATIENCE_SECONDS)
    status = status_of(yard, name)
    return status["phase"], sum(task.get("restartCount", 0) for task in status["tasks"])


def test_whatever_is_killed_nothing_is_lost_and_nothing_is_left(tmp_path: Path) -> None:
    for tool in ("torchrun", "deepspeed", "colossalai", "pdsh", "ssh", "sshd"):
        require(tool)
    seed = int(os.environ.get("TRAINYARD_SEED") or random.randrange(1 << 32))
    print(f"TRAINYARD_SEED={seed}")
    before = residue()
    with clusters(tmp_path) as (yard, alone):
        prey = Prey(yard, alone)
        killed, names = rampage(yard, alone, prey, random.Random(seed))
        print(f"killed: {dict(killed)}")
        settle(yard, names)
        yard.run("delete", "--all", "--yes", "--wait")
        bring_up(yard)
        prey.look()
        yard.run("down")
        until(lambda: not prey.left(), "no process is left")
        left = [path.name for path in yard.state.iterdir()]
        assert not {"api.sock", "shim.sock", "cluster.json"}.intersection(left)
        # What a killed run could not remove itself, its control groups, the next one does.
        [good, _] = short_jobs(KILLS + 1)
        alone.run("run", "-f", alone.manifest("good.yaml", good))
        runs = (alone.state / "runs").iterdir()
        after = residue(yard.state, alone.state, *runs)
    assert {what: there - before[what] for what, there in after.items()} == {
        what: set() for what in after
    }


def rampage(
    yard: Yard, alone: CommandLine, prey: Prey, rng: random.Random
) -> tuple[Counter[str], list[str]]:
    """Kill and bring up again; how often what was killed, and the names of the short jobs."""
    (yard.folder / "wait.py").write_text(WAIT)
    for job in (*short_jobs(0), *long_jobs()):
        create(yard, job)
    service = {"selector": {"none": "such"}, "ports": [{"port": 80}]}
    body = {"metadata": {"name": "relayed"}, "spec": service}
    yard.api.request("POST", "/api/v1/namespaces/default/services", body)
    names = [job["metadata"]["name"] for job in short_jobs(0)]
    killed: Counter[str] = Counter()
    for number in range(1, KILLS + 1):
        time.sleep(rng.uniform(0, LONGEST_PAUSE_SECONDS))
        found = prey.look()
        sort = rng.choice([*sorted(sort for sort, pids in found.items() if pids), "run"])
        if sort == "run":
            kill_a_run(alone, rng)
        else:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(rng.choice(sorted(found[sort])), signal.SIGKILL)
        killed[sort] += 1
        bring_up(yard)
        if number % KILLS_BETWEEN_SHORT_JOBS == 0:
            for job in short_jobs(number):
                create(yard, job)
                names.append(job["metadata"]["name"])
    return killed, names


def settle(yard: Yard, names: list[str]) -> None:
    """Every job comes to the end that its policy says; the short ones with an exact account."""
    (yard.folder / "finish").touch()
    for name in LONG:
        assert end(yard, name)[0] == "Succeeded", yard.run("show", name, code=None)
    for name in names:
        expected = ("Succeeded", 0) if name.startswith("good") else ("Failed", 2)
        assert end(yard, name) == expected, yard.run("show", name, code=None)
