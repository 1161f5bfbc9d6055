"""A cluster of one job, small enough to move by hand: it carries out plans and lets pods live.

Pods are stored as JSON objects, as an API server would give them, and decoded anew for each pass.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from tests.simulation.reconcile_checks import untrue
from tests.simulation.reconcile_result import ReconcileResult
from trainyard.kinds.kind_registry import KINDS, describe
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kinds.shared.workload import Workload
from trainyard.kube.resources import PODS, Resource
from trainyard.lifecycle import Observed, Owned, Plan, Pod, plan
from trainyard.lifecycle.actions import Create, Delete, Event, Patch
from trainyard.lifecycle.observed import Conflict, Flavor, Refusal
from trainyard.lifecycle.pod_reports import NO_REPORTS
from trainyard.schema.times import render

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
UID = "0f6c3a52-8a0f-4a7e-9c06-6a0f7f1d2b11"
SETTINGS = Settings()

Change = Callable[[dict[str, Any]], None]


def template(**container: Any) -> dict[str, Any]:
    """A pod template with one container."""
    return {"spec": {"containers": [{"name": "main", "image": "i", "command": ["x"], **container}]}}


def pytorch(
    *,
    workers: int = 4,
    policy: str = "OnFailure",
    run_policy: Mapping[str, Any] | None = None,
    types: list[dict[str, Any]] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A PyTorchTrainingJob."""
    worker = {
        "type": "worker",
        "replicas": workers,
        "restartPolicy": policy,
        "template": template(args=["train.py"]),
    }
    body = {"replicaSpecs": types or [worker], "runPolicy": dict(run_policy or {}), **spec}
    return _job("PyTorchTrainingJob", body)


def torchrun(**kwargs: Any) -> dict[str, Any]:
    """A PyTorchTrainingJob under torchrun, which restarts worker groups by itself too."""
    return pytorch(torchrunConfig={"enabled": True, "maxRestarts": 3}, **kwargs)


def elastic(low: int, expected: int, high: int, **kwargs: Any) -> dict[str, Any]:
    """An elastic PyTorchTrainingJob."""
    bounds = {
        "enabled": True,
        "minReplicas": low,
        "maxReplicas": high,
        "expectedReplicas": expected,
    }
    return pytorch(torchrunConfig={"enabled": True}, elastic=bounds, **kwargs)


def generic(
    *, workers: int = 2, policy: str = "OnFailure", limit: int = 0, **spec: Any
) -> dict[str, Any]:
    """A GenericJob."""
    worker = {
        "type": "worker",
        "replicas": workers,
        "restartPolicy": {"policy": policy, "limit": limit},
        "template": template(),
    }
    return _job("GenericJob", {"replicaSpecs": [worker], **spec})


def deepspeed(
    *, workers: int = 3, policy: str = "OnFailure", run_policy: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A DeepSpeedJob: worker-0 launches over all workers."""
    worker = {"replicas": workers, "restartPolicy": policy, "template": template()}
    config = {"run": {"python": ["train.py"]}}
    return _job(
        "DeepSpeedJob", {"config": config, "worker": worker, "runPolicy": dict(run_policy or {})}
    )


def colossalai(
    *, workers: int = 2, policy: str = "OnFailure", limit: int = 0, **spec: Any
) -> dict[str, Any]:
    """A ColossalAIJob: a launcher, and workers."""
    restart = {"policy": policy, "limit": limit}
    body = {
        "torchConfig": {"script": ["train.py"]},
        "replicaSpecs": [
            {"type": "launcher", "restartPolicy": restart, "template": {}},
            {
                "type": "worker",
                "replicas": workers,
                "restartPolicy": restart,
                "template": template(),
            },
        ],
        **spec,
    }
    return _job("ColossalAIJob", body)


def _job(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        "name": "train",
        "namespace": "default",
        "uid": UID,
        "generation": 1,
        "creationTimestamp": render(START),
    }
    api = "batch.tensorstack.dev/v1beta1"
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


class World:
    """One job and everything that it owns."""

    def __init__(self, job: dict[str, Any], settings: Settings = SETTINGS) -> None:
        self.job = copy.deepcopy(job)
        self.settings = settings
        self.now = self._latest = START
        self.pods: dict[str, dict[str, Any]] = {}
        self.owned: dict[tuple[Resource, str], dict[str, Any]] = {}
        self.status: dict[str, Any] | None = None
        self.events: list[Event] = []
        self.refusals: tuple[Refusal, ...] = ()
        self.conflicts: tuple[Conflict, ...] = ()
        self.lost_nodes: frozenset[str] = frozenset()
        self.flavors: dict[str, Flavor] = {}
        self.reports = NO_REPORTS
        self.since: datetime | None = None
        self.deleted = False
        self.warnings: tuple[str, ...] = ()
        self.last = Plan(None)
        self._described: tuple[object, Workload] | None = None
        self._uids = (f"uid-{n}" for n in itertools.count())

    @property
    def workload(self) -> Workload:
        """Made once per change of the job, as the operator makes it once per generation."""
        key = (json.dumps(self.job), self.settings, self.warnings)
        if self._described is None or self._described[0] != key:
            model = KINDS[self.job["kind"]].model.model_validate(self.job)
            described = describe(model, self.settings)  # type: ignore[arg-type]
            self._described = key, replace(described, warnings=self.warnings)
        return self._described[1]

    # Passes.

    def observed(self) -> Observed:
        return Observed(
            pods=tuple(Pod.decode(pod) for pod in self.pods.values()),
            owned=tuple(Owned.decode(resource, o) for (resource, _), o in self.owned.items()),
            refusals=self.refusals,
            conflicts=self.conflicts,
            lost_nodes=self.lost_nodes,
            flavors=self.flavors,
            reports=self.reports,
            since=self.since,
        )

    def look(self) -> Plan:
        """Compute a plan, whose texts must be true, and do not carry it out."""
        status = json.loads(json.dumps(self.status)) if self.status is not None else None
        observed = self.observed()
        made = plan(self.workload, status, observed, self.now, self.settings)
        job = {**self.job, "status": self.status}
        self._latest = max(self._latest, self.now)
        result = ReconcileResult.of(job, observed, made, self.now)
        lies = list(untrue(result, times=self.now == self._latest))
        assert not lies, "\n".join(lies)
        return made

    def step(self) -> Plan:
        """One pass of the controller."""
        self.last = self.look()
        if self.last.status is not None:
            self.status = json.loads(json.dumps(self.last.status))
        for action in self.last.actions:
            self.apply(action)
        self.events += self.last.events
        return self.last

    def settle(self, limit: int = 20) -> Self:
        """Passes until nothing changes; pods on their way out go at once."""
        for _ in range(limit):
            done = self.step()
            gone = [name for name, pod in self.pods.items() if _is_going(pod)]
            for name in gone:
                del self.pods[name]
            if done.status is None and not done.actions and not gone:
                return self
        raise AssertionError(f"does not settle; last plan: {self.last}")

    def apply(self, action: Create | Delete | Patch) -> None:
        if isinstance(action, Create):
            self._create(action)
        elif isinstance(action, Delete):
            self._delete(action)
        else:
            is_pod = action.resource == PODS
            obj = self.pods[action.name] if is_pod else self.owned[action.resource, action.name]
            assert obj["metadata"]["uid"] == action.uid
            assert isinstance(action.patch, dict)
            for part in ("spec", "status"):
                obj.setdefault(part, {}).update(action.patch.get(part, {}))
            notes = action.patch.get("metadata", {}).get("annotations", {})
            obj["metadata"].setdefault("annotations", {}).update(notes)

    def _create(self, action: Create) -> None:
        obj = json.loads(json.dumps(action.manifest()))
        obj["metadata"]["uid"] = next(self._uids)
        obj["metadata"]["creationTimestamp"] = render(self.now)
        if action.resource == PODS:
            assert action.name not in self.pods, f"{action.name} is there already"
            obj["status"] = {"phase": "Pending"}
            self.pods[action.name] = obj
        else:
            self.owned[action.resource, action.name] = obj

    def _delete(self, action: Delete) -> None:
        if action.resource == self.workload.resource:
            self.deleted = True
        elif action.resource != PODS:
            del self.owned[action.resource, action.name]
        elif action.grace_seconds == 0:
            del self.pods[action.name]
        else:
            self.take(action.name, 30)

    # What happens to pods.

    def name(self, replica: str) -> str:
        """`worker-1` as a pod's name; `0` as that of worker 0."""
        replica = f"worker-{replica}" if replica.isdigit() else replica
        return f"{self.workload.base}-{replica}"

    def advance(self, seconds: float) -> Self:
        self.now += timedelta(seconds=seconds)
        return self

    def run(self, *replicas: str) -> Self:
        """Let pods (all by default) run."""
        for name in [self.name(r) for r in replicas] or list(self.pods):
            pod = self.pods[name]
            if pod["status"]["phase"] == "Pending":
                pod["spec"]["nodeName"] = "node"
                pod["status"] = {
                    "phase": "Running",
                    "startTime": render(self.now),
                    "containerStatuses": [
                        {"name": c["name"], "state": {"running": {}}}
                        for c in pod["spec"]["containers"]
                    ],
                }
        return self

    def exit(self, replica: str, code: int = 1, **terminated: Any) -> Self:
        """End a replica's containers with that code."""
        pod = self.pods[self.name(replica)]
        ended = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "finishedAt": render(self.now),
            **terminated,
        }
        pod["status"]["phase"] = "Failed" if code else "Succeeded"
        for container in pod["status"]["containerStatuses"]:
            container["state"] = {"terminated": ended}
        return self

    def evict(self, replica: str) -> Self:
        pod = self.pods[self.name(replica)]
        pod["status"] |= {"phase": "Failed", "reason": "Evicted", "message": "The node was low."}
        return self

    def take(self, name: str, grace: int = 30) -> Self:
        """Begin to delete a pod, as anybody may."""
        meta = self.pods[name]["metadata"]
        meta["deletionTimestamp"] = render(self.now + timedelta(seconds=grace))
        meta["deletionGracePeriodSeconds"] = grace
        return self

    def remove(self, replica: str) -> Self:
        """Have a pod gone, as anybody may."""
        del self.pods[self.name(replica)]
        return self

    def running(self) -> Self:
        """The job from nothing to all replicas running."""
        self.settle().run().settle()
        assert self.phase == "Running", self.status
        return self

    # What status says.

    @property
    def phase(self) -> str:
        return str((self.status or {}).get("phase"))

    @property
    def backoff(self) -> int:
        assert self.status is not None
        return int(self.status["backoffCount"])

    @property
    def aggregate(self) -> dict[str, int]:
        """Without the zeros."""
        assert self.status is not None
        return {phase: n for phase, n in self.status["aggregate"].items() if n}

    def condition(self, kind: str) -> tuple[str, str, str] | None:
        assert self.status is not None
        for c in self.status["conditions"]:
            if c["type"] == kind:
                return c["status"], c["reason"], c["message"]
        return None

    def messages(self, reason: str) -> list[str]:
        """Messages of the events with this reason."""
        return [event.message for event in self.events if event.reason == reason]

    def attempt_of(self, replica: str) -> str:
        return str(
            self.pods[self.name(replica)]["metadata"]["annotations"]["trainyard.dev/attempt"]
        )


def _is_going(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]
