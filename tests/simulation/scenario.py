"""What happens in one run: the jobs, how their pods end, the faults. All drawn from the seed."""

from __future__ import annotations

import json
import random
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from tests.queueing.kueue import Kueue
from tests.simulation import (
    elastic,
    in_place_pods,
    kueue_queues,
    node_checks,
    repeated_failures,
    restart_budgets,
    ssh_launches,
)
from tests.simulation.network import CRASHES, Fault, WatchFault
from tests.simulation.pod_reports import reports
from tests.simulation.seeds import (
    FIFTH_GENERATION,
    FIRST_GENERATION,
    FOURTH_GENERATION,
    SECOND_GENERATION,
    THIRD_GENERATION,
)
from trainyard.kinds.shared.job_settings import GangBackend, Settings

Obj = dict[str, Any]

CODES = (1, 1, 1, 2, 130, 137, 138, 143)
CALL_FAULTS: tuple[Fault, ...] = tuple(fault for fault in Fault if fault is not Fault.NONE)
REASONS = (
    "OOMKilled",
    "Evicted",
    "NodeLost",
    "Deleted",
    "TerminationByKubelet",
    "EvictionByEvictionAPI",
    "DeletionByTaintManager",
)
PHASES = ("Pending", "Running", "Paused", "Resuming", "Succeeded", "Failed", "Unknown")
FAULTS_END = 150.0
"""Virtual seconds after which nothing goes wrong any more."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happens at a moment of virtual time; `what` is a method of the run."""

    at: float
    what: str
    argument: Any = None


@dataclass(frozen=True, slots=True)
class Boards:
    """How the pages of viewers run: a share of them, `rate`, ends a few times."""

    rate: float
    rng: random.Random

    def draw(self) -> list[int]:
        """Exit codes, one after the other."""
        if self.rng.random() >= self.rate:
            return []
        return self.rng.choices((1, 127, 137), k=self.rng.randint(1, 3))


@dataclass(slots=True)
class Scenario:
    """One run, laid out in advance."""

    seed: int
    settings: Settings
    jobs: list[Obj]
    numbered: dict[int, Step]
    """Steps in the order of their times."""
    call_faults: dict[int, Fault]
    """What happens to the n-th request of the controller."""
    fault_rate: float
    """The chance that any other request fails as well."""
    failure_rate: float
    """The chance that a pod that is started while faults last ends with an error."""
    success_seconds: float
    peers_die: bool
    newcomers: elastic.Newcomers
    launches: ssh_launches.Launches | None
    """None: nothing is told of launches; as in seeds of the first generation."""
    boards: Boards | None
    """The same of viewers."""
    messages: repeated_failures.FailureMessages
    has_standby: bool
    """Whoever takes over from a controller that has crashed has watched all the while."""
    queue: Kueue | None
    """The queue to which all jobs are handed, if they are."""
    rng: random.Random = field(repr=False)

    def elements(self) -> list[str]:
        """Names of what can be left out: steps (a job is its `submit`), faults and chances."""
        return [
            *(f"step{number}" for number in self.numbered),
            *(f"call{number}" for number in sorted(self.call_faults)),
            *(["faults"] if self.fault_rate else []),
            *(["failures"] if self.failure_rate else []),
            *(["peers"] if self.peers_die else []),
            *(["newcomers"] if self.newcomers.rate else []),
            *(["launches"] if self.launches and self.launches.rate else []),
            *(["boards"] if self.boards and self.boards.rate else []),
            *(["standby"] if self.has_standby else []),
        ]

    def without(self, names: Collection[str]) -> Scenario:
        """The same with some of its elements left out."""
        return replace(
            self,
            numbered={n: step for n, step in self.numbered.items() if f"step{n}" not in names},
            call_faults={n: f for n, f in self.call_faults.items() if f"call{n}" not in names},
            fault_rate=0.0 if "faults" in names else self.fault_rate,
            failure_rate=0.0 if "failures" in names else self.failure_rate,
            peers_die=self.peers_die and "peers" not in names,
            newcomers=replace(self.newcomers, rate=0.0) if "newcomers" in names else self.newcomers,
            launches=replace(self.launches, rate=0.0)
            if self.launches and "launches" in names
            else self.launches,
            boards=replace(self.boards, rate=0.0)
            if self.boards and "boards" in names
            else self.boards,
            has_standby=self.has_standby and "standby" not in names,
        )

    def describe(self) -> list[str]:
        """The scenario in words, a line for each thing that happens."""
        lines = [f"Kueue has room for {self.queue.quota} pods"] if self.queue else []
        for step in self.numbered.values():
            lines.append(
                f"at {step.at:.3f} s: {step.what} {_format_argument(step.argument)}".rstrip()
            )
            if step.what == "submit":
                lines.append(f"  {json.dumps(self.jobs[step.argument])}")
        lines += [f"request {n}: {self.call_faults[n]}" for n in sorted(self.call_faults)]
        if self.fault_rate:
            lines.append(f"any other request fails with a chance of {self.fault_rate}")
        if self.failure_rate:
            lines.append(f"a pod that starts will fail with a chance of {self.failure_rate}")
        if self.peers_die:
            lines.append("when a replica fails, its peers end or hang")
        if self.newcomers.rate:
            lines.append(f"a newcomer will fail with a chance of {self.newcomers.rate}")
        if self.launches and self.launches.rate:
            lines.append(f"a launch will not be quick with a chance of {self.launches.rate}")
        if self.boards and self.boards.rate:
            lines.append(f"a viewer's page will crash with a chance of {self.boards.rate}")
        lines.append(f"a program fails as before with a chance of {self.messages.stubborn}")
        if self.has_standby:
            lines.append("a standby that has watched takes over")
        return lines

    def outcome(self, faults_last: bool, job: Obj | None, pod: Obj) -> tuple[float, int]:
        """How a pod of a job that is started now runs: seconds and exit code."""
        failed = self.newcomers.outcome(job, pod) if faults_last and job is not None else None
        if failed is not None:
            return failed
        if faults_last and self.rng.random() < self.failure_rate:
            return self.rng.uniform(0.1, 30.0), self.rng.choice(CODES)
        return self.success_seconds + self.rng.uniform(0.0, 2.0), 0


def draw(seed: int) -> Scenario:
    """The run of that seed."""
    rng = random.Random(seed)
    settings = Settings.local() if rng.random() < 0.5 else Settings()
    is_first = seed in FIRST_GENERATION
    has_standbys = not is_first and seed not in SECOND_GENERATION
    jobs = [_job(rng, "first")]
    if rng.random() < 0.25:
        jobs.append(_job(rng, "second"))
    _add_policies(random.Random(f"{seed} policies"), jobs, often=not is_first)
    _add_containers(random.Random(f"{seed} containers"), jobs)
    steps = _user_steps(rng, jobs) + _cluster_steps(rng)
    newcomers, resizes = elastic.draw(random.Random(f"{seed} newcomers"), jobs)
    steps += [Step(at, "scale", (number, size)) for at, number, size in resizes]
    if len(jobs) == 1 and any(step.what == "delete" for step in steps):
        jobs.append(_job(rng, "second"))  # one that goes on
        steps.append(Step(rng.uniform(0.5, 60.0), "submit", 1))
    launches = None if is_first else ssh_launches.draw(random.Random(f"{seed} launches"), jobs)
    boards = None if is_first else _boards(random.Random(f"{seed} boards"), jobs)
    queue = None if is_first else kueue_queues.draw(seed, jobs)
    if queue is not None:
        settings = replace(settings, gang_backend=GangBackend.KUEUE)
        steps += [Step(*each) for each in kueue_queues.steps(seed)]
    once = FIRST_GENERATION | SECOND_GENERATION | THIRD_GENERATION
    messages = repeated_failures.draw(seed, jobs, judged=seed not in once)
    once |= FOURTH_GENERATION
    if reports(seed):
        if seed not in once:
            in_place_pods.draw(seed, jobs)
            node_checks.draw(seed, jobs)
        restart_budgets.draw(seed, jobs, once=seed in once | FIFTH_GENERATION)
    count = rng.randint(2, 7)
    call_faults: dict[int, Fault] = {
        rng.randint(1, 90): rng.choice(CALL_FAULTS) for _ in range(count)
    }
    # A crash of its own makes every run begin again at least now and then.
    if rng.random() < 0.5:
        call_faults[rng.randint(24, 60)] = rng.choice(CRASHES)
    return Scenario(
        seed=seed,
        settings=settings,
        jobs=jobs,
        numbered=dict(enumerate(sorted(steps, key=lambda step: step.at))),
        call_faults=call_faults,
        fault_rate=rng.choice((0.0, 0.0, 0.02, 0.1)),
        failure_rate=rng.choice((0.0, 0.1, 0.25, 0.5)),
        success_seconds=rng.uniform(1.0, 90.0),
        peers_die=rng.random() < 0.7,
        newcomers=newcomers,
        launches=launches,
        boards=boards,
        messages=messages,
        has_standby=has_standbys and random.Random(f"{seed} standby").random() < 0.5,
        queue=queue,
        rng=rng,
    )


def _format_argument(argument: Any) -> str:
    """A step's argument; those of faults are tuples."""
    parts = argument if isinstance(argument, tuple) else (argument,)
    return " ".join(str(part) for part in parts if part is not None)


def _job(rng: random.Random, name: str) -> Obj:
    make = rng.choice((_pytorch, _pytorch, _pytorch, _generic, _generic, _deepspeed, _colossalai))
    job = make(rng)
    job["apiVersion"] = "batch.tensorstack.dev/v1beta1"
    job["metadata"] = {"name": name, "namespace": "default"}
    if rng.random() < 0.03:
        job["spec"]["notAField"] = True  # stored by a server without our webhook
    if rng.random() < 0.1:
        job["spec"]["runMode"] = {"pause": {"enabled": True}}
    if rng.random() < 0.15:
        job["spec"]["scheduler"] = {"t9kScheduler": {"queue": "default", "priority": 5}}
    return job


def _add_policies(rng: random.Random, jobs: list[Obj], *, often: bool) -> None:
    """By a generator of their own, so that a seed keeps its jobs otherwise.

    `often`: rules meet what befalls the cluster, by condition and by reason.
    """
    for job in jobs:
        if rng.random() < (0.4 if often else 0.25):
            run = job["spec"].setdefault("runPolicy", {})
            run["podFailurePolicy"] = {"rules": _failure_rules(rng, often=often)}
        if job["kind"] == "PyTorchTrainingJob" and rng.random() < 0.2:
            job["spec"]["runPolicy"]["successPolicy"] = "AllReplicas"
        types = job["spec"].get("replicaSpecs") or ()
        plain = job["kind"] == "PyTorchTrainingJob" and "torchrunConfig" not in job["spec"]
        if plain and len(types) > 1 and rng.random() < 0.4:
            rng.choice(types)["restartScope"] = rng.choice(("Replica", "Replica", "Job"))


def _add_containers(rng: random.Random, jobs: list[Obj]) -> None:
    """Init containers and sidecars; and some jobs are only debugged."""
    for job in jobs:
        spec = job["spec"]
        for type_ in spec.get("replicaSpecs") or [spec["worker"]]:
            if not type_["template"]:
                continue
            init: list[Obj] = []
            if rng.random() < 0.2:
                init.append({"name": "prep", "image": "busybox", "command": ["fetch"]})
            if rng.random() < 0.15:
                beside = {"name": "beside", "image": "busybox", "command": ["tail"]}
                init.append({**beside, "restartPolicy": "Always"})
            if init:
                type_["template"]["spec"]["initContainers"] = init
        if rng.random() < 0.07:
            spec.setdefault("runMode", {})["debug"] = {"enabled": True}


def _failure_rules(rng: random.Random, *, often: bool) -> list[Obj]:
    rules: list[Obj] = []
    for _ in range(rng.randint(1, 3)):
        action = rng.choice(("FailJob", "Ignore", "Ignore", "Count", "Restart"))
        if often and rng.random() < 0.3:
            rules.append({"action": action, "onReasons": rng.sample(REASONS, rng.randint(1, 3))})
            continue
        if rng.random() < (0.5 if often else 0.25):
            rules.append({"action": action, "onPodConditions": [{"type": "DisruptionTarget"}]})
            continue
        values = sorted(rng.sample(sorted(set(CODES)), rng.randint(1, 3)))
        operator = rng.choice(("In", "In", "In", "NotIn"))
        rules.append({"action": action, "onExitCodes": {"operator": operator, "values": values}})
    return rules


def _boards(rng: random.Random, jobs: list[Obj]) -> Boards:
    """More jobs have viewers."""
    for job in jobs:
        if job["kind"] == "PyTorchTrainingJob" and rng.random() < 0.2:
            logs: Obj = {"pvc": [{"name": "data", "subPath": ["log"]}]}
            if rng.random() < 0.3:
                logs["s3"] = {"secretRef": {"name": "keys"}, "uri": ["s3://logs/run/"]}
            job["spec"]["tensorboardSpec"] = {"image": "tensorboard", "logDir": logs}
    return Boards(rng.choice((0.0, 0.5, 0.9)), rng)


def _template(container: str) -> Obj:
    return {
        "spec": {
            "containers": [
                {"name": container, "image": "python:3.11", "args": ["train.py", "--epochs", "3"]}
            ]
        }
    }


def _pytorch(rng: random.Random) -> Obj:
    policies = ("Never", "OnFailure", "OnFailure", "Always", "ExitCode")
    layouts = (
        [("worker", rng.randint(3, 5))],
        [("master", 1), ("worker", rng.randint(2, 4))],
        [("worker", rng.randint(2, 3)), ("ps", 1)],
    )
    types = rng.choice(layouts)
    policy = rng.choice(policies)
    spec: Obj = {
        "replicaSpecs": [
            {
                "type": type_,
                "replicas": count,
                "restartPolicy": policy if rng.random() < 0.8 else rng.choice(policies),
                "template": _template("pytorch"),
            }
            for type_, count in types
        ]
    }
    run: Obj = {"cleanUpPolicy": rng.choice(("None", "Unfinished", "All"))}
    if rng.random() < 0.7:
        run["backoffLimit"] = rng.randint(0, 5)
    if rng.random() < 0.2:
        run["activeDeadlineSeconds"] = rng.randint(5, 200)
    if rng.random() < 0.1:
        run["ttlSecondsAfterFinished"] = rng.randint(0, 100)
    if rng.random() < 0.2:
        run["restartScope"] = rng.choice(("Job", "Replica"))
    spec["runPolicy"] = run
    if rng.random() < 0.35:
        spec["torchrunConfig"] = {"enabled": True, "procPerNode": "1"}
        if rng.random() < 0.5:
            total = sum(count for _, count in types)
            spec["elastic"] = {
                "enabled": True,
                "minReplicas": 1,
                "maxReplicas": total + 2,
                "expectedReplicas": total,
            }
    if rng.random() < 0.1:
        logs = {"pvc": [{"name": "data", "subPath": ["log"]}]}
        spec["tensorboardSpec"] = {"image": "tensorboard", "logDir": logs}
    return {"kind": "PyTorchTrainingJob", "spec": spec}


def _deepspeed(rng: random.Random) -> Obj:
    count = rng.randint(3, 4)
    spec: Obj = {
        "config": {"slotsPerWorker": 1, "run": {"python": ["train.py"]}},
        "worker": {
            "replicas": count,
            "restartPolicy": rng.choice(("Never", "OnFailure", "Always", "ExitCode")),
            "template": _template("worker"),
        },
        "runPolicy": {
            "cleanUpPolicy": rng.choice(("None", "Unfinished", "All")),
            "backoffLimit": rng.randint(0, 4),
        },
    }
    if rng.random() < 0.3:
        spec["elastic"] = {
            "enabled": True,
            "minReplicas": 1,
            "maxReplicas": count + 1,
            "expectedReplicas": count,
        }
    return {"kind": "DeepSpeedJob", "spec": spec}


def _colossalai(rng: random.Random) -> Obj:
    policy = {"policy": "OnFailure", "limit": rng.choice((0, 2))}
    spec: Obj = {
        "ssh": {"authMountPath": "/root/.ssh", "sshdPath": "/usr/sbin/sshd"},
        "torchConfig": {"procPerWorker": 1, "script": ["train.py"]},
        "replicaSpecs": [
            {"type": "launcher", "replicas": 1, "restartPolicy": policy, "template": {}},
            {
                "type": "worker",
                "replicas": rng.randint(2, 3),
                "restartPolicy": policy,
                "template": _template("worker"),
            },
        ],
        "runPolicy": {"cleanUpWorkers": rng.random() < 0.5},
    }
    return {"kind": "ColossalAIJob", "spec": spec}


def _generic(rng: random.Random) -> Obj:
    types = rng.choice(
        ([("worker", rng.randint(3, 4))], [("chief", 1), ("worker", rng.randint(2, 3))])
    )
    spec: Obj = {
        "replicaSpecs": [
            {
                "type": type_,
                "replicas": count,
                "restartPolicy": {
                    "policy": rng.choice(("Never", "OnFailure", "OnFailure", "Always")),
                    "limit": rng.choice((0, 1, 2, 5)),
                },
                "template": _template("main"),
            }
            for type_, count in types
        ],
        "cleanUpPolicy": rng.choice(("None", "Unfinished", "All")),
    }
    first = types[0][0]
    if rng.random() < 0.4:
        spec["successRules"] = [{first: [0]}]
    if rng.random() < 0.5:
        spec["failureRules"] = [{first: [0]}]
    if rng.random() < 0.5:
        spec["service"] = {"ports": [{"name": "tf", "port": 2222}]}
    return {"kind": "GenericJob", "spec": spec}


def _user_steps(rng: random.Random, jobs: list[Obj]) -> list[Step]:
    steps = []
    for number, job in enumerate(jobs):
        start = rng.uniform(0.5, 5.0)
        steps.append(Step(start, "submit", number))
        if "runMode" in job["spec"]:
            steps.append(Step(start + rng.uniform(1, 60), "resume", number))
        elif rng.random() < 0.2:
            pause = start + rng.uniform(0.5, 60)
            steps.append(Step(pause, "pause", number))
            if rng.random() < 0.8:
                steps.append(Step(pause + rng.uniform(0.5, 40), "resume", number))
        if "elastic" in job["spec"]:
            limit = job["spec"]["elastic"]["maxReplicas"]
            steps += [
                Step(rng.uniform(2, 120), "scale", (number, rng.randint(1, limit)))
                for _ in range(rng.randint(0, 3))
            ]
        if rng.random() < 0.07:
            steps.append(Step(start + rng.uniform(0.2, 100), "delete", number))
        if rng.random() < 0.1:
            steps.append(Step(rng.uniform(0.0, start), "squat", number))
        if rng.random() < 0.2:
            phase, thoroughly = rng.choice(PHASES), rng.random() < 0.5
            steps.append(Step(rng.uniform(start, 140), "forge", (number, phase, thoroughly)))
    return steps


def _cluster_steps(rng: random.Random) -> list[Step]:
    plurals = ("pods", "pods", "pytorchtrainingjobs", "genericjobs", "services")
    steps = []
    for _ in range(rng.randint(3, 6)):
        fault = rng.choice(tuple(WatchFault))
        at = rng.uniform(0.5, FAULTS_END * 0.8)
        steps.append(Step(at, "break_watch", (fault, rng.choice(plurals), rng.uniform(0.5, 30.0))))
    for _ in range(rng.randint(1, 4)):
        what = rng.choice(("evict", "evict", "delete_pod", "lose_node", "set_clock", "crash"))
        at = rng.uniform(3.0, FAULTS_END * 0.8)
        argument: Any = None
        if what == "evict":
            argument = rng.random() < 0.5
        elif what == "set_clock":
            argument = rng.choice((-30.0, -5.0, 5.0, 60.0, 400.0))
        elif what == "lose_node":
            argument = (rng.choice(("node-a", "node-b", "node-c")), rng.uniform(5.0, 400.0))
        steps.append(Step(at, what, argument))
    return steps
