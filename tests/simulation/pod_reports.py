"""Pods that report, to whichever controller is there, whatever has become of their job; and what
must hold of that: a job that has ended stays as it is, progress that was told is never lost, and
nothing is written for its sake more often than was asked for.

That reports cost no pod is what the monitor looks for anyway. One seed in three plays with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable

from tests.simulation.cluster import JOB_PLURALS
from tests.simulation.server import Change, ModelServer, Obj, Observer, owner_uid
from trainyard.kinds.shared import labels
from trainyard.operator.channel.trainer_status import BadReport
from trainyard.operator.reconcile.controller import Controller

ADDRESS = "channel.test:7443"
_TERMINAL = ("Succeeded", "Failed")
_MEAN_SECONDS = 2.0
_KINDS = ("Collecting", "Waiting", "Waiting", "Meeting", "Busy", "Looping", "Idle", "Left", "New")
PROGRESS_SECONDS = 30.0


def reports(seed: int) -> bool:
    """Whether pods report in that run."""
    return seed % 3 == 1


class Reporters(Observer):
    """All pods of a run. `fail` is told what must not be."""

    def __init__(
        self,
        server: ModelServer,
        seed: int,
        fail: Callable[[str], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._server, self._fail, self._loop = server, fail, loop
        self._own_writes: Counter[str] = Counter()
        self._rng = random.Random(seed ^ 0x7E11)
        self._ranks = random.Random(seed ^ 0x0B5E)
        self._arrivals = random.Random(seed ^ 0x1A7E)
        self._apart = random.Random(seed ^ 0x0A9A)
        self._memory = random.Random(seed ^ 0x3E30)
        self._stuck: dict[str, str] = {}
        self.controllers: list[Controller] = []
        """All that ever were: those that are dead hear nothing that matters."""
        self._steps = 0
        self._began: dict[str, tuple[float, int]] = {}
        """When a pod has told its first step, and which; every other tells its own times."""

    async def run(self, until: float) -> None:
        """Report now and then."""
        rng = self._rng
        while self._loop.time() < until:
            await asyncio.sleep(rng.expovariate(1 / _MEAN_SECONDS))
            pods = self._server.all("pods")
            if pods and self.controllers:
                self._report(rng.choice(pods), rng.choice(self.controllers[-2:]))
                for pod in pods:
                    self._observe(pod, self.controllers[-1])

    def _report(self, pod: Obj, controller: Controller) -> None:
        self._steps += 1
        rng = self._rng
        fields = {"current_step": self._steps, "total_steps": 5000, "loss": rng.random()}
        fields["current_epoch"] = self._steps / 100
        kept = [name for name in fields if rng.random() < 0.6]
        status: Obj = {"metrics": [{"name": name, "value": str(fields[name])} for name in kept]}
        if rng.random() < 0.2:
            at = {"step": self._steps} if rng.random() < 0.5 else {}
            status["checkpoint"] = {"path": f"/out/{self._steps}", **at}
        if rng.random() < 0.4:
            status["progressPercentage"] = rng.choice((0, 50, 100))
        if rng.random() < 0.3:
            status["estimatedRemainingSeconds"] = rng.choice((5, 500, 50_000, 500_000))
        if work := self._work(pod["metadata"]["uid"]):
            status["work"] = work
        uid, name = owner_uid(pod), pod["metadata"]["name"]
        controller.reports.receive(uid, name, {"trainerStatus": status})

    def _observe(self, pod: Obj, controller: Controller) -> None:
        """What the observer in a pod says of its rank; most of a job do the same for a while."""
        rng, meta = self._ranks, pod["metadata"]
        uid = owner_uid(pod)
        if rng.random() < 0.05 or uid not in self._stuck:
            self._stuck[uid] = rng.choice(_KINDS)
        if rng.random() < 0.3:
            return
        kind = rng.choice(_KINDS) if rng.random() < 0.1 else self._stuck[uid]
        rank, number = int(meta["labels"].get(labels.REPLICA_INDEX, 0)), rng.choice((6, 6, 7))
        line = [["/work/train.py", rng.choice((5, 12)), "main"]][: rng.choice((0, 1, 1))]
        entry = {"number": number, "operation": rng.choice(("barrier", "all_reduce"))}
        entry |= {"group": rng.choice("0aa"), "sizes": rng.choice(([], [[4]])), "done": False}
        observation: Obj = {
            "attempt": int((meta.get("annotations") or {}).get(labels.ATTEMPT, 1)),
            "rank": rank,
            "size": rank + rng.choice((1, 1, 1, 3)),
            "pid": 2,
            "kind": kind,
            "seconds": rng.choice((5, 400, 4000)),
            "every": rng.choice((2, 30)),
            "line": (line or [[]])[0],
            "frames": line,
            "waitsFor": rng.choice(("hrtimer_nanosleep", "futex_do_wait", "/dev/fifo", "ep_poll")),
            "counts": [["0", number, number - 1]],
            "ring": [{**entry, "number": 5, "done": True}, entry][: rng.choice((0, 2, 2))],
        }
        if self._apart.random() < 0.02:
            observation |= {"kind": "Apart", "library": self._apart.choice(("torch", "mpi4py"))}
        observation |= self._arrived(rank)
        if rng.random() < 0.1:  # users' programs can send what they like
            observation[rng.choice(list(observation))] = rng.choice(
                (None, [1], [[1, 2, 3]], {}, "?", -1, True)
            )
        if samples := self._memory.choice((0, 0, 1, 2)):
            observation["memory"] = [[0, 900], [30, 400]][:samples]
        with contextlib.suppress(BadReport):
            sent: object = observation if rng.random() < 0.99 else [observation]
            controller.reports.receive(uid, meta["name"], {"observation": sent})

    def _arrived(self, rank: int) -> Obj:
        """When it came to its collectives, by a clock of its own; rank 1 is late now and then."""
        rng, now = self._arrivals, self._loop.time()
        late = 0.3 * (rank == 1 and int(now / 60) % 2)
        numbers = range(max(1, int(now) - 40), int(now))
        ago = [[n, 1e3 * (now - n - late - rng.random() / 10), 1000.0] for n in numbers]
        arrivals = [["0", [[n, max(0.0, each), gap] for n, each, gap in ago]]]
        machine = rng.choice(("a", "a", "a", "b"))
        return {
            "machine": machine,
            "now": 1e9 + 5000.0 * (machine == "b") + now,
            "arrivals": arrivals,
            "cadence": [2, 1.5][: 2 * (rank == 0)],
        }

    def _work(self, pod: str) -> Obj | None:
        now = self._loop.time()
        if pod not in self._began:
            self._began[pod] = now, self._steps
        if [*self._began].index(pod) % 2:
            return None
        began, first = self._began[pod]
        age = now - began
        made = {"savedStep": self._steps, "savedSeconds": age} if self._steps % 5 == 0 else {}
        return {
            "run": pod,
            "first": first,
            "age": age,
            "seconds": age,
            "saving": age / 10,
            **made,
        }

    def changed(self, plural: str, change: Change) -> None:
        """Judge every change of a job's progress."""
        if plural not in JOB_PLURALS or change.type != "MODIFIED" or change.old is None:
            return
        name = change.object["metadata"]["name"]
        old, new = (each.get("status") or {} for each in (change.old, change.object))
        before, after = old.get("progress"), new.get("progress")
        if before == after:
            return
        if before and not after:
            self._fail(f"{name}: progress that was told is gone")
        elif (old.get("internal") or {}).get("ended") and new.get("phase") in _TERMINAL:
            self._fail(f"{name}: progress of a job that has ended changes")
        elif before and (before.get("checkpoint") and not after.get("checkpoint")):
            self._fail(f"{name}: a checkpoint that was told is gone")
        elif "collectives" in after and after.get("step") is not None:
            self._fail(f"{name}: its collectives are told, though its step is known")
        elif {**old, "progress": after} == new:
            self._own_writes[name] += 1
            most = 5 + 1.5 * self._loop.time() / PROGRESS_SECONDS
            if self._own_writes[name] > most:
                self._fail(f"{name}: progress is written {most:.0f} times for its own sake")
