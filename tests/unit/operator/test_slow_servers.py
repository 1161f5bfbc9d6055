"""Whole operators, Lease and all, on servers that are slow or refuse, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.simulation.cluster import Cluster, WallClock
from tests.simulation.network import Conditions, Fault, Wire
from tests.simulation.server import Key, ModelServer
from tests.simulation.virtual_time import run
from trainyard.kinds.kind_registry import KINDS
from trainyard.kube.client import Client
from trainyard.kube.paced_transport import PacedTransport, RequestLimits
from trainyard.kube.transport import Request, Response, StreamResponse
from trainyard.operator.config.operator_settings import LeaseSettings, OperatorSettings
from trainyard.operator.leader_election import LeaderElection
from trainyard.operator.reconcile.controller import Controller
from trainyard.operator.runtime_context import RuntimeContext

JOBS = KINDS["PyTorchTrainingJob"]
Trouble = Callable[[], Awaitable[Response | None]]
"""What befalls a request before it reaches the server: time passes, or it is refused."""


class Troubled:
    """A transport on which each request meets trouble first."""

    def __init__(self, wire: Wire, trouble: Trouble) -> None:
        self._wire = wire
        self._trouble = trouble

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        return await self._trouble() or await self._wire.request(request, timeout_seconds)

    def stream(
        self, request: Request, timeout_seconds: float
    ) -> AbstractAsyncContextManager[StreamResponse]:
        return self._wire.stream(request, timeout_seconds)

    async def aclose(self) -> None:
        await self._wire.aclose()


class Land:
    """A cluster, and operators that compete for its jobs."""

    def __init__(self, trouble: Trouble) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = WallClock(self.loop)
        self.server = ModelServer(self.clock, random.Random(1))
        self.trouble = trouble
        self.led: list[str] = []
        self.working: set[str] = set()
        self.tasks: list[asyncio.Task[None]] = []
        cluster = Cluster(
            self.server,
            random.Random(2),
            self.loop,
            lambda pod: (5.0, 0),
            peers_die=lambda pod: False,
            launch=lambda pod: None,
            is_launched=lambda pod: False,
            crashes=list,
            names_oom=False,
            termination_message=lambda pod, code: "",
        )
        self.server.observers.append(cluster)
        cluster.start()

    def submit(self, count: int) -> None:
        container = {"name": "pytorch", "image": "i", "command": ["train"]}
        worker = {"type": "worker", "template": {"spec": {"containers": [container]}}}
        for number in range(count):
            job = {"apiVersion": JOBS.api_version, "kind": JOBS.kind}
            metadata = {"name": f"job-{number}"}
            job |= {"metadata": metadata, "spec": {"replicaSpecs": [worker]}}  # type: ignore[dict-item]
            self.server.create(JOBS.plural, "default", job)

    def phases(self) -> set[str]:
        return {job.get("status", {}).get("phase", "") for job in self.server.all(JOBS.plural)}

    async def until_all_succeed(self) -> None:
        async with asyncio.timeout(4 * 3600):
            for _ in iter(lambda: self.phases() == {"Succeeded"}, True):
                await asyncio.sleep(5)

    def _transport(self, name: str) -> Troubled:
        conditions = Conditions(lambda call: Fault.NONE, lambda key: None)
        rng = random.Random(name)
        wire = Wire(self.server, conditions, rng, 1, bool, lambda sent: None, lambda *_: None)
        return Troubled(wire, self.trouble)

    def enter(self, name: str, clock_offset: float = 0.0) -> None:
        """An operator of that name, whose clock is off by so much."""
        clock = WallClock(self.loop)
        clock.offset = clock_offset
        paced = PacedTransport(self._transport(name), RequestLimits())
        jitter = random.Random(f"{name} jitter").random
        client = Client(paced, jitter=jitter, quiet=paced.quiet)
        controller = Controller(
            client, OperatorSettings(), RuntimeContext(clock, random.Random(name))
        )
        other = Client(self._transport(f"{name} lease"), jitter=jitter)
        lease = LeaderElection(other, LeaseSettings(), clock, identity=name)

        async def work() -> None:
            assert not self.working, f"{name} beside {self.working}"
            self.led.append(name)
            self.working.add(name)
            try:
                await controller.synced.wait()
                await controller.work()
            finally:
                self.working.discard(name)

        async def operate() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(controller.watch())
                await lease.run(work)

        self.tasks.append(asyncio.create_task(operate()))

    @property
    def transitions(self) -> int:
        lease: Any = self.server.get(Key("leases", "default", "trainyard-controller"))
        return int(lease["spec"]["leaseTransitions"])

    async def leave(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)


async def _slow() -> None:
    await asyncio.sleep(2.5)


def _refusing() -> Trouble:
    rng = random.Random(7)

    async def refuse() -> Response | None:
        if rng.random() < 0.3:
            return Response(429, {"retry-after": "1"}, b'{"kind":"Status","code":429}')
        return None

    return refuse


@pytest.mark.parametrize("trouble", [_slow, _refusing()], ids=["2.5 s each", "30 % refused"])
def test_many_jobs_end_and_no_lease_is_lost(trouble: Trouble) -> None:
    async def main() -> None:
        land = Land(trouble)
        land.enter("a")
        land.enter("b")
        land.submit(120)
        await land.until_all_succeed()
        assert land.led in (["a"], ["b"])
        assert land.transitions == 0
        await land.leave()

    run(main())


@pytest.mark.parametrize("offset", [-30.0, 30.0])
def test_clocks_that_differ_by_half_a_minute_do_not_make_two_leaders(offset: float) -> None:
    async def main() -> None:
        land = Land(_none)
        land.enter("a")
        await asyncio.sleep(5)
        land.enter("b", offset)
        land.submit(3)
        await land.until_all_succeed()
        await asyncio.sleep(300)
        assert (land.led, land.transitions) == (["a"], 0)
        await land.leave()

    run(main())


async def _none() -> None:
    pass
