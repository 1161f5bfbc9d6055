"""Pods that are held after their command has failed, for restarts in place (decision 283).

They do what `payloads/in_place` does: they tell whichever controller leads how their attempt is,
and end it, start the next one or leave by its answers. One job in two that can restart in place
does, in runs in which pods report.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.simulation.cluster import Cluster, Outcome, has_ended
from tests.simulation.repeated_failures import FALLOUT
from tests.simulation.server import Obj
from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.kinds.shared import labels
from trainyard.operator.channel.report_router import ReportRouter
from trainyard.operator.reconcile.controller import Controller

_PATIENCE_SECONDS = 60.0
_ENDING_SECONDS = (1.0, 5.0, 28.0)
"""At most so long do commands take to end when they are told to; some of their grace."""
_STOPPED = 143
_OUT_OF_MEMORY = 137
"""Then the kernel has killed something, and the pod itself has to tell of it."""


def draw(seed: int, jobs: Sequence[Obj]) -> None:
    """Have some jobs ask for it."""
    rng = random.Random(f"{seed} in place")
    for job in jobs:
        if rng.random() < 0.5 and _is_possible(job):
            job["spec"]["runPolicy"]["restartMode"] = "InPlace"
            for type_ in job["spec"]["replicaSpecs"]:
                type_["template"]["spec"]["containers"][0]["command"] = ["python"]


def _is_possible(job: Obj) -> bool:
    spec = job["spec"]
    if job["kind"] != "PyTorchTrainingJob" or "elastic" in spec:
        return False
    scopes = [each.get("restartScope") for each in (spec["runPolicy"], *spec["replicaSpecs"])]
    return "Replica" not in scopes


@dataclass(slots=True)
class InPlacePod:
    """One such pod. `code`: how the attempt ended; None as long as it runs."""

    attempt: int
    code: int | None = None
    message: str = ""
    ended_at: float = 0.0
    answered_at: float = 0.0
    wanted: int = 0
    start: int = 0
    is_over: bool = False
    is_stopping: bool = False


class InPlacePods:
    """All of a run. `ended` is told of each attempt that has failed in a pod which stays, `fail`
    of what must not be."""

    def __init__(
        self,
        cluster: Cluster,
        rng: random.Random,
        leader: Callable[[], Controller | None],
        ended: Callable[[Obj, int, str], None],
        fail: Callable[[str], None],
    ) -> None:
        self._cluster, self._rng, self._leader = cluster, rng, leader
        self._ended, self._fail = ended, fail
        self._loop = cluster.loop
        self._pods: dict[str, InPlacePod] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, pod: Obj, outcome: Outcome) -> None:
        """The container of a pod has started."""
        uid = pod["metadata"]["uid"]
        self._pods[uid] = InPlacePod(_attempt(pod))
        self._start(uid, outcome)
        task = self._loop.create_task(self._follow(uid))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def attempt(self, uid: str) -> int:
        """The attempt in a pod; 0 for one that is not held."""
        state = self._pods.get(uid)
        return state.attempt if state is not None else 0

    def command_ends(self, uid: str, attempt: int, code: int, *, because_of_peer: bool) -> None:
        """A command ends, if that attempt still runs."""
        state = self._pods.get(uid)
        _, pod = self._cluster.find(uid)
        if state is None or state.attempt != attempt or state.code is not None:
            return
        if pod is None or has_ended(pod):
            return
        if uid in self._cluster.doomed and not because_of_peer:
            return
        is_alone = code == 0 or (code == _OUT_OF_MEMORY and self._cluster.names_oom)
        state.code, state.ended_at = code, self._loop.time()
        state.message = FALLOUT if because_of_peer else self._cluster.termination_message(pod, code)
        if is_alone and state.wanted <= state.attempt:
            self._leave(uid, state)
            return
        if pod["metadata"].get("deletionTimestamp") is None:
            self._ended(pod, code, state.message)
        if self._cluster.peers_die(pod):
            self._cluster.take_peers_along(pod)

    def _start(self, uid: str, outcome: Outcome) -> None:
        attempt = self._pods[uid].attempt
        self._cluster.doomed.discard(uid)
        self._loop.call_later(outcome[0], self._ends, uid, attempt, outcome[1])

    def _ends(self, uid: str, attempt: int, code: int) -> None:
        self.command_ends(uid, attempt, code, because_of_peer=False)

    def _leave(self, uid: str, state: InPlacePod) -> None:
        """The pod ends as its command has."""
        assert state.code is not None
        self._pods.pop(uid, None)
        self._cluster.end(uid, state.code, state.message)

    async def _follow(self, uid: str) -> None:
        while (state := self._pods.get(uid)) is not None:
            most = 1.5 if state.code is not None or state.is_stopping else 5.0
            await asyncio.sleep(self._rng.uniform(0.5, most))
            _, pod = self._cluster.find(uid)
            if pod is None or has_ended(pod) or pod["metadata"].get("deletionTimestamp"):
                self._pods.pop(uid, None)
            elif pod["spec"].get("nodeName") not in self._cluster.lost:
                self._ask(pod, state)
                self._act(pod, state)

    def _ask(self, pod: Obj, state: InPlacePod) -> None:
        """As the channel answers."""
        controller = self._leader()
        if controller is None or state.is_over:
            return
        router, meta = ReportRouter(controller), pod["metadata"]
        state.answered_at = self._loop.time()
        if not router.is_working:
            return
        owner = meta["ownerReferences"][0]
        job = JOB_KINDS[owner["kind"]].plural, meta["namespace"], owner["name"]
        subject = router.find_job(*job, meta["name"])
        if subject is None:
            return
        if subject.is_finished or not subject.owns_pod:
            state.is_over = True
            return
        report = {
            "uid": meta["uid"],
            "attempt": state.attempt,
            "ended": state.code is not None,
            "exitCode": state.code or 0,
            "seconds": self._loop.time() - state.ended_at if state.code is not None else 0.0,
            "message": state.message,
        }
        answer = router.receive(subject.uid, meta["name"], {"hold": report})
        if answer:
            state.wanted, state.start = answer["wanted"], answer["start"]
            if state.start > state.attempt and state.code is None:
                self._fail(f"{meta['name']} is to start attempt {state.start} while one runs")

    def _act(self, pod: Obj, state: InPlacePod) -> None:
        uid = pod["metadata"]["uid"]
        if state.code is None:
            if state.wanted > state.attempt and not state.is_stopping:
                state.is_stopping = True
                seconds = self._rng.uniform(0.1, self._rng.choice(_ENDING_SECONDS))
                self._loop.call_later(seconds, self._stopped, uid, state.attempt)
            return
        if state.is_over:
            self._leave(uid, state)
        elif state.start > state.attempt and state.start >= state.wanted:
            self._pods[uid] = InPlacePod(state.start, answered_at=state.answered_at)
            self._start(uid, self._cluster.outcome(pod))
        else:
            is_decided = state.wanted > state.attempt
            since = max(state.ended_at, state.answered_at) if is_decided else state.ended_at
            if self._loop.time() - since > _PATIENCE_SECONDS:
                self._leave(uid, state)

    def _stopped(self, uid: str, attempt: int) -> None:
        """The command has done as it was told: that is no failure of its own."""
        state = self._pods.get(uid)
        if state is not None and state.attempt == attempt and state.code is None:
            state.code, state.ended_at = _STOPPED, self._loop.time()


def _attempt(pod: Obj) -> int:
    return int(pod["metadata"]["annotations"][labels.ATTEMPT])
