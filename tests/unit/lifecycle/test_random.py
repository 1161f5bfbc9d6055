"""Random lives of jobs: pods run, end and vanish, the controller dies at any point of a pass.

The rules checked after every step hold for every job at every time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.lifecycle.world import (
    World,
    colossalai,
    deepspeed,
    elastic,
    generic,
    pytorch,
    torchrun,
)
from trainyard.kube.resources import PODS
from trainyard.lifecycle.actions import Create

STEPS = 60
SEEDS = 12

JOBS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": lambda: pytorch(run_policy={"backoffLimit": 4, "cleanUpPolicy": "Unfinished"}),
    "exit code": lambda: pytorch(policy="ExitCode", run_policy={"cleanUpPolicy": "All"}),
    "always": lambda: pytorch(policy="Always"),
    "never": lambda: pytorch(policy="Never"),
    "replica scope": lambda: pytorch(run_policy={"restartScope": "Replica"}),
    "torchrun": torchrun,
    "elastic": lambda: elastic(1, 3, 4),
    "elastic, never": lambda: elastic(2, 3, 4, policy="Never"),
    "elastic, exit code": lambda: elastic(1, 3, 4, policy="ExitCode"),
    "elastic, always": lambda: elastic(1, 3, 4, policy="Always"),
    "elastic, replica scope": lambda: elastic(1, 3, 4, run_policy={"restartScope": "Replica"}),
    "deepspeed": lambda: deepspeed(run_policy={"backoffLimit": 2, "cleanUpPolicy": "All"}),
    "colossalai": lambda: colossalai(limit=2),
    "gang": lambda: pytorch(scheduler={"t9kScheduler": {"queue": "q"}}),
    "deadline": lambda: pytorch(run_policy={"activeDeadlineSeconds": 900}),
    "generic": lambda: generic(workers=3, limit=2),
    "generic always": lambda: generic(workers=3, policy="Always", limit=2, cleanUpPolicy="All"),
    "generic rules": lambda: generic(
        workers=3,
        limit=1,
        successRules=[{"worker": [0, 1]}],
        failureRules=[{"worker": [2]}],
        service={"ports": [{"port": 80}]},
    ),
}

TERMINAL = ("Succeeded", "Failed")
ALLOWED = {
    ("None", "Pending"),
    ("None", "Paused"),
    ("Pending", "Running"),
    ("Pending", "Unknown"),
    ("Running", "Pending"),
    ("Running", "Unknown"),
    ("Unknown", "Running"),
    ("Unknown", "Pending"),
    ("Resuming", "Running"),
    ("Resuming", "Unknown"),
    ("Paused", "Resuming"),
    *((phase, "Paused") for phase in ("Pending", "Running", "Unknown", "Resuming")),
    *((a, b) for a in ("Pending", "Running", "Unknown", "Resuming") for b in TERMINAL),
    ("Paused", "Running"),
}


class Life:
    """One random life."""

    def __init__(self, job: dict[str, Any], seed: int) -> None:
        self.world = World(job)
        self.random = random.Random(seed)
        self.limit = max(t.limit for t in self.world.workload.types)

    def live(self) -> None:
        for _ in range(STEPS):
            self.something()
            self.pass_(crash=self.random.random() < 0.3)
        self.calm_down()

    def something(self) -> None:
        """Anything that may happen to a job from outside."""
        world, chance = self.world, self.random
        names = list(world.pods)
        pod = world.pods[chance.choice(names)] if names else None
        match chance.randrange(15):
            case 0 | 1 | 2 | 3:
                world.run()
            case 4 if pod and pod["status"].get("containerStatuses"):
                code = chance.choice([0, 0, 1, 1, 137, 138, 143])
                world.exit(pod["metadata"]["name"].removeprefix(world.workload.base + "-"), code)
            case 5 if pod:
                world.take(pod["metadata"]["name"])
            case 6 if pod:
                del world.pods[pod["metadata"]["name"]]
            case 7:
                self.vanish()
            case 8:
                pause = chance.random() < 0.3
                world.job["spec"]["runMode"] = {"pause": {"enabled": pause}}
            case 9 if "elastic" in world.job["spec"]:
                world.job["spec"]["elastic"]["expectedReplicas"] = chance.randint(1, 4)
            case 10 | 11:
                self.trouble_the_node(pod)
            case 12:
                self.come_to_rest()
            case _:
                world.advance(chance.choice([0.1, 5, 60]))

    def trouble_the_node(self, pod: dict[str, Any] | None) -> None:
        """It evicts a pod, does not answer, or answers again."""
        world = self.world
        if (
            pod is not None
            and pod["status"].get("containerStatuses")
            and self.random.random() < 0.5
        ):
            world.evict(pod["metadata"]["name"].removeprefix(world.workload.base + "-"))
        else:
            world.lost_nodes = frozenset() if world.lost_nodes else frozenset({"node"})

    def come_to_rest(self) -> None:
        """Without news there is soon nothing to do, and no reason to look at once."""
        world = self.world
        for _ in range(12):
            plan = world.look()
            assert plan.wake_at is None or plan.wake_at > world.now
            if plan.status is None and not plan.actions:
                return
            self.pass_()
        raise AssertionError(f"always something to do: {world.look()}")

    def vanish(self) -> None:
        """Pods on their way out are gone."""
        pods = self.world.pods
        for name in [n for n, p in pods.items() if "deletionTimestamp" in p["metadata"]]:
            del pods[name]

    def pass_(self, *, crash: bool = False) -> None:
        """One pass; a crash leaves it after the status, or in the middle of the actions."""
        world = self.world
        before = world.status
        plan = world.last = world.look()
        if crash and self.random.random() < 0.3:
            return
        if plan.status is not None:
            world.status = json.loads(json.dumps(plan.status))
        self.check(before, world.status or {})
        actions = list(plan.actions)
        if crash:
            actions = actions[: self.random.randrange(len(actions) + 1)]
        for action in actions:
            if isinstance(action, Create) and action.resource == PODS:
                assert world.phase not in (*TERMINAL, "Paused"), "nothing starts then"
            world.apply(action)

    def check(self, before: dict[str, Any] | None, after: dict[str, Any]) -> None:
        old, new = str((before or {}).get("phase")), str(after.get("phase"))
        assert old == new or (old, new) in ALLOWED, (old, new)
        workload = self.world.workload
        if old not in TERMINAL:
            assert sum(after["aggregate"].values()) == workload.replicas
        if workload.counts_backoff:
            assert (before or {}).get("backoffCount", 0) <= after["backoffCount"] <= self.limit
        conditions = {c["type"]: c["status"] for c in after["conditions"]}
        ended = new in TERMINAL
        assert conditions.get("Completed") == str(ended)
        assert conditions.get("Failed") == (str(new == "Failed") if ended else None)
        assert conditions.get("Paused", "False") == str(new == "Paused") or ended

    def calm_down(self) -> None:
        """Once faults stop, every job ends, and its clean-up policy is carried out."""
        world = self.world
        world.job["spec"]["runMode"] = {}
        world.lost_nodes = frozenset()
        for _ in range(60):
            self.vanish()
            world.run().advance(30)
            for name, pod in list(world.pods.items()):
                running = pod["status"]["phase"] == "Running"
                if running and "deletionTimestamp" not in pod["metadata"]:
                    world.exit(name.removeprefix(world.workload.base + "-"), 0)
            self.pass_()
            if world.phase in TERMINAL:
                break
        assert world.phase in TERMINAL, world.status
        for _ in range(5):
            self.pass_()
            self.vanish()
        self.come_to_rest()
        left = {pod["status"]["phase"] for pod in world.pods.values()}
        match world.workload.clean_up.value:
            case "All":
                assert not left
            case "Unfinished":
                assert left <= {"Succeeded", "Failed"}


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_rules_hold_in_every_life(kind: str, seed: int) -> None:
    Life(JOBS[kind](), seed).live()
