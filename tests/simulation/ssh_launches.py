"""Launches over ssh as the model plays them: most are quick, some wait, hang, or find hosts that
differ or lack something."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.simulation.server import Obj
from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.kinds.shared.workload import LAUNCHED_PATH

PROBE_SECONDS = 10.0
PROBE_OUTPUTS = (
    "waiting for worker-1: Connection refused",
    "waiting for worker-1, worker-2: its name cannot be found: Name or service not known",
    "deepspeed was started, but no rank has begun",
)
NOTES = (
    "preflight: torch differs: 2.3.0 on worker-0; 2.1.0 on worker-1",
    "preflight: worker-1 has 1 GPUs for 2 processes",
)
MISSING = "missing are train.py on worker-1, worker-2"
UNREADY = 2
"""Exit code of a launch whose hosts lack something."""


class Launch(NamedTuple):
    """How one goes."""

    seconds: float | None
    """Until the first rank starts, or the launch ends; None: for ever."""
    probe_output: str = ""
    """What its probe prints meanwhile."""
    note: str = ""
    """In what the hosts differ on which it starts."""
    lacks: bool = False
    """It ends for what its hosts lack."""

    def message(self, pod: str) -> str:
        """The last words of one that ends so."""
        return f"trainyard: {pod}: the preflight failed with exit code {UNREADY}: {MISSING}"


@dataclass(frozen=True, slots=True)
class Launches:
    """How the launches of a run go: a share of them, `rate`, is not quick."""

    rate: float
    rng: random.Random

    def draw(self, faults_last: bool) -> Launch:
        """The next one."""
        rng = self.rng
        if not faults_last or rng.random() >= self.rate:
            return Launch(rng.uniform(0.1, 4.0))
        what = rng.random()
        probe_output = rng.choice(PROBE_OUTPUTS)
        if what < 0.3:
            return Launch(rng.uniform(5.0, 90.0), probe_output)
        if what < 0.5:
            return Launch(None, probe_output if rng.random() < 0.8 else "")
        if what < 0.8:
            return Launch(rng.uniform(0.5, 40.0), probe_output, note=rng.choice(NOTES))
        return Launch(rng.uniform(0.5, 8.0), lacks=True)


def draw(rng: random.Random, jobs: Sequence[Obj]) -> Launches:
    """Launches; some jobs have a limit of their own."""
    for job in jobs:
        if is_over_ssh(job) and rng.random() < 0.7:
            run = job["spec"].setdefault("runPolicy", {})
            run["launchTimeoutSeconds"] = rng.randint(15, 150)
    return Launches(rng.choice((0.0, 0.3, 0.7)), rng)


def is_over_ssh(job: Obj) -> bool:
    """Whether one replica of the job launches the others."""
    return JOB_KINDS[job["kind"]].launches_over_ssh


def launches(pod: Obj) -> bool:
    """Whether the pod does, and tells how it goes."""
    probes = (container.get("startupProbe") for container in pod["spec"]["containers"])
    return any(LAUNCHED_PATH in str(probe) for probe in probes)


def waits(pod: Obj) -> bool:
    """Whether its launch has not started."""
    statuses = pod["status"].get("containerStatuses") or ()
    return pod["status"].get("phase") == "Running" and any(
        "running" in each["state"] and each.get("started") is False for each in statuses
    )
