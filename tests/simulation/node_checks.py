"""Pods whose nodes are tested before the start (decision 295).

They do what `payloads/node_check` does, beside whatever becomes of their commands: they tell
whichever controller leads how their test stands, and go on by its answers. Most PyTorch jobs that
can ask for it, in runs in which pods report.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.cluster import NODES, Cluster
from tests.simulation.server import Obj
from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.kinds.shared import labels
from trainyard.operator.channel.report_router import ReportRouter
from trainyard.operator.channel.trainer_status import BadReport
from trainyard.operator.reconcile.controller import Controller

_VARIABLE = "TRAINYARD_NODE_CHECK"
_ANSWERS = ("wait", "check", "start")


def draw(seed: int, jobs: Sequence[Obj]) -> None:
    """Have some jobs ask for it."""
    rng = random.Random(f"{seed} node check")
    for job in jobs:
        if (
            rng.random() < 0.5
            and job["kind"] == "PyTorchTrainingJob"
            and "elastic" not in job["spec"]
        ):
            job["spec"].setdefault("runPolicy", {})["nodeCheck"] = {"enabled": True}
            for type_ in job["spec"]["replicaSpecs"]:
                type_["template"]["spec"]["containers"][0]["command"] = ["python"]


@dataclass(slots=True)
class _Trial:
    """The test in one pod."""

    report: dict[str, Any]
    is_over: bool = False
    order: dict[str, Any] = field(default_factory=dict)


class Checkers:
    """All of a run. `fail` is told what must not be."""

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        leader: Callable[[], Controller | None],
        fail: Callable[[str], None],
    ) -> None:
        self._cluster, self._leader, self._fail = cluster, leader, fail
        self._rng = random.Random(seed ^ 0x40DE)
        self._fault_rate = self._rng.choice((0.0, 0.05, 0.1))
        """How often anything goes wrong by itself."""
        self._bad = self._rng.choice(("", "", *NODES))
        """A node that fails whoever is tried with it."""
        cluster.is_full = random.Random(f"{seed} full").random() < 0.4
        self._trials: dict[str, _Trial] = {}

    async def run(self, until: float) -> None:
        """Each pod asks now and then."""
        while self._cluster.loop.time() < until:
            await asyncio.sleep(self._rng.uniform(0.3, 1.0))
            for (plural, _, _), pod in list(self._cluster.server.objects.items()):
                if plural == "pods" and _is_tested(pod) and self._rng.random() < 0.8:
                    self._step(pod)

    def _step(self, pod: Obj) -> None:
        uid, rng = pod["metadata"]["uid"], self._rng
        if uid not in self._trials:
            attempt = int(pod["metadata"]["annotations"][labels.ATTEMPT])
            report = {"uid": uid, "attempt": attempt, "stage": "begun", "host": "h"}
            self._trials[uid] = _Trial(report, is_over=rng.random() < self._fault_rate)
        trial = self._trials[uid]
        if trial.is_over or pod["spec"].get("nodeName") in self._cluster.lost:
            return
        answer = self._ask(pod, trial)
        stage, order_word = trial.report["stage"], answer.get("say", "wait")
        if order_word not in _ANSWERS:
            self._fail(f"{pod['metadata']['name']} is told {order_word!r}")
        if stage == "begun":
            is_able = rng.random() >= 2 * self._fault_rate
            error = "wrong" if is_able and rng.random() < self._fault_rate else ""
            tried = {"port": 7, "seconds": self._seconds(pod), "error": error}
            more = tried if is_able else {"error": "no torch"}
            trial.report |= {"stage": "ready" if is_able else "left", **more}
        elif stage == "left" or (order_word == "start" and stage in ("ready", "done")):
            trial.is_over = True
        elif stage == "ready" and order_word == "check":
            trial.report |= {"stage": "testing", "run": answer["run"]}
            trial.order = answer
        elif stage == "testing":
            gives_up = rng.random() < self._fault_rate
            pairs = [self._pair(pod, each) for each in trial.order["pairs"]]
            trial.report |= {"stage": "left", "error": "late"} if gives_up else {"stage": "done"}
            trial.report["pairs"] = pairs

    def _seconds(self, pod: Obj) -> float:
        is_slow = self._is_bad(pod) and self._rng.random() < 0.3
        return self._rng.uniform(2.0, 3.0) if is_slow else self._rng.uniform(0.1, 0.2)

    def _is_bad(self, pod: Obj) -> bool:
        return bool(self._bad) and pod["spec"].get("nodeName") == self._bad

    def _pair(self, pod: Obj, order: Obj) -> Obj:
        key = ("pods", pod["metadata"]["namespace"], order["replica"])
        peer = self._cluster.server.objects.get(key)
        is_lost = peer is None or not _runs(peer) or self._is_bad(peer) or self._is_bad(pod)
        if peer is None or is_lost or self._rng.random() < self._fault_rate:
            return {"replica": order["replica"], "seconds": 0.0, "error": "reset"}
        slow = self._rng.random() < 2 * self._fault_rate
        return {"replica": order["replica"], "seconds": 9.0 if slow else 0.1, "error": ""}

    def _ask(self, pod: Obj, trial: _Trial) -> Obj:
        """As the channel answers."""
        controller = self._leader()
        if controller is None:
            return {}
        router, meta = ReportRouter(controller), pod["metadata"]
        owner = meta["ownerReferences"][0]
        job = JOB_KINDS[owner["kind"]].plural, meta["namespace"], owner["name"]
        subject = router.find_job(*job, meta["name"]) if router.is_working else None
        if subject is None or subject.is_finished or not subject.owns_pod:
            return {}
        if self._rng.random() < self._fault_rate:
            junk = self._rng.choice(({"stage": "over"}, {**trial.report, "pairs": [{}] * 3}))
            with contextlib.suppress(BadReport):
                router.receive(subject.uid, meta["name"], {"nodeCheck": junk})
                self._fail(f"{junk} was taken in")
        return dict(router.receive(subject.uid, meta["name"], {"nodeCheck": dict(trial.report)}))


def _is_tested(pod: Obj) -> bool:
    containers = pod["spec"].get("containers") or ()
    asks = any(e.get("name") == _VARIABLE for c in containers for e in c.get("env") or ())
    return asks and _runs(pod) and not pod["metadata"].get("deletionTimestamp")


def _runs(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"
