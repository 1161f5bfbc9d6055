"""Kueue in the modelled cluster: takes its turn a little after every change."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.queueing.kueue import FLAVOR, PLURAL, Invalid, Kueue
from tests.simulation.server import Change, Key, ModelServer, Obj, Observer, Refused

_IDLE_SECONDS = 1.0
_LEFT_ALONE = frozenset({1, 2, 17, 77, 8000635, 358016702, 758550509, 812937761})
"""Seeds whose runs are told of elsewhere, by what befell them without a queue."""
KNOWN_SECONDS = 120.0
"""For so long a controller may not have heard of what somebody did to a Workload."""


def draw(seed: int, jobs: list[Obj]) -> Kueue | None:
    """Whether the jobs of that seed are handed to Kueue, which has room for the largest."""
    rng = random.Random(f"{seed} queues")
    if seed in _LEFT_ALONE or rng.random() >= 0.15:
        return None
    for job in jobs:
        job["spec"]["scheduler"] = {
            "t9kScheduler": {"queue": "team", "priority": rng.choice((5, 50))}
        }
    checks = ("capacity",) if rng.random() < 0.2 else ()
    quota = max(map(_largest, jobs)) + rng.randint(0, 2)
    late = rng.uniform(20.0, 60.0) if rng.random() < 0.2 else None
    return Kueue(quota, checks, ready=set(checks), ready_seconds=late)


def steps(seed: int) -> Iterator[tuple[float, str, Any]]:
    """What befalls the queue: when, what, and for how long or to which job."""
    rng = random.Random(f"{seed} queue steps")
    for _ in range(rng.randint(1, 4)):
        what = rng.choice(("stop_queue", "deactivate", "delete_workload"))
        yield rng.uniform(3.0, 120.0), what, rng.uniform(0.5, 60.0)


def _largest(job: Obj) -> int:
    """How many replicas the job may come to have."""
    spec = job["spec"]
    types = spec.get("replicaSpecs") or [spec["worker"]]
    elastic = (spec.get("elastic") or {}).get("maxReplicas", 0)
    return max(sum(each["replicas"] for each in types), elastic)


@dataclass(slots=True)
class Queues(Observer):
    """Kueue with one LocalQueue, whose webhook reviews what others write."""

    server: ModelServer
    rng: random.Random
    loop: asyncio.AbstractEventLoop
    kueue: Kueue
    is_due: bool = field(default=False)

    def start(self) -> None:
        """From now on jobs are queued."""
        self.server.reviews[PLURAL] = self._review
        self.server.create("resourceflavors", "", FLAVOR)
        self._tick()

    def changed(self, plural: str, change: Change) -> None:
        """Take a turn soon."""
        if plural == PLURAL and not self.is_due:
            self.is_due = True
            self.loop.call_later(self.rng.uniform(0.001, 0.5), self._turn)

    def stop(self, seconds: float) -> None:
        """The ClusterQueue is stopped for a while."""
        self.kueue.is_stopped = True
        self.loop.call_later(seconds, self.restore)

    def deactivate(self, seconds: float) -> None:
        """Somebody deactivates a Workload for a while."""
        if found := self.server.all(PLURAL):
            self._activate(self.rng.choice(found), False)
            self.loop.call_later(seconds, self.restore)

    def delete(self) -> None:
        """Somebody deletes a Workload."""
        if found := self.server.all(PLURAL):
            self.server.delete(_key(self.rng.choice(found)))

    def restore(self) -> None:
        """All is well again."""
        self.kueue.is_stopped = False
        for each in self.server.all(PLURAL):
            if each["spec"].get("active") is False:
                self._activate(each, True)

    def _activate(self, workload: Obj, active: bool) -> None:
        self.server.patch(_key(workload), {"spec": {"active": active}})

    def _tick(self) -> None:
        """What depends on the time alone."""
        self._turn()
        self.loop.call_later(_IDLE_SECONDS, self._tick)

    def _turn(self) -> None:
        self.is_due = False
        now = self.server.now().replace(microsecond=0)
        for each in list(self.kueue.turn(self.server.all(PLURAL), now)):
            self.server.set(_key(each), spec=each["spec"], status=each["status"])

    def _review(self, old: Obj | None, new: Obj) -> None:
        try:
            self.kueue.review(old, new)
        except Invalid as problem:
            raise Refused(
                403, "Forbidden", f"vworkload.kb.io denied the request: {problem}"
            ) from None


def _key(workload: Obj) -> Key:
    return Key(PLURAL, workload["metadata"]["namespace"], workload["metadata"]["name"])
