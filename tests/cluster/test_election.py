"""Several operators on one cluster: one works, and the next takes over."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import pytest

from tests.cluster.kubelet import FailsOnce, running_kubelet
from tests.cluster.plane import ADMIN, RunningControlPlane, starved
from tests.cluster.yard import PYTORCH, Operator, Yard, pytorch_job, until
from tests.tools import soak
from trainyard.kube.resources import LEASES
from trainyard.schema.times import parse

KILLS = 20


async def leaders(operators: list[Operator]) -> list[bool]:
    """Which of them do the work just now."""
    answers = await asyncio.gather(*(each.answer("/metrics") for each in operators))
    return ["trainyard_leader 1.0" in answer for answer in answers]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda n: n.name)
async def test_the_standby_takes_over(number: signal.Signals, yard: Yard) -> None:
    """The job of the dead leader goes on to its end; there were never two leaders."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(yard.operator())
        await first.leads()
        second = await stack.enter_async_context(yard.operator())
        kubelet = await stack.enter_async_context(running_kubelet(yard.client, yard.namespace))
        await yard.kubectl("apply", "-f", "-", stdin=json.dumps(pytorch_job("digits")))
        await yard.reaches("digits", "Running")
        assert await leaders([first, second]) == [True, False]
        loop, pids = asyncio.get_running_loop(), [*yard.plane.pids, second.process.pid]
        waited = starved(pids)
        code, died_at = await first.kill(number), loop.time()
        assert code == (0 if number == signal.SIGTERM else -signal.SIGKILL)
        await second.leads()
        took = loop.time() - died_at - (starved(pids) - waited)
        # Left in order, the Lease is free at once; else its 15 seconds have to pass.
        assert took < (10 if number == signal.SIGTERM else 30)
        await kubelet.end_all("digits", 0)
        await yard.reaches("digits", "Succeeded")
        lease = await yard.client.get(
            LEASES, f"trainyard-controller-{yard.namespace}", yard.namespace
        )
        assert lease["spec"]["leaseTransitions"] == 1
        assert len(kubelet.seen) == 2


@dataclass
class Takeover:
    """From a leader's death to the Lease's next holder, in seconds by the Lease's own times."""

    took: float
    waited: float
    """Of these, threads of the standby and of the servers wanted a CPU, and had none."""


async def test_leaders_killed_in_churn_lose_and_double_nothing(yard: Yard) -> None:
    """Each of many jobs fails once and then succeeds, while one leader after another is killed.

    The next leads within the Lease's time and a second, but for the time for which the machine
    kept it from running: a starved standby sees late both the last renewal and its end.
    """
    kills, lasts = soak(3, KILLS), soak(4, 15)
    short = ("--lease-duration=4s", "--lease-renew-deadline=3s", "--lease-retry-period=600ms")
    options = () if lasts == 15 else short
    rng, seen, names = random.Random(11), [], []
    async with AsyncExitStack() as stack:
        fate = FailsOnce()
        await stack.enter_async_context(running_kubelet(yard.client, yard.namespace, fate))
        leader = await stack.enter_async_context(yard.operator(*options))
        await leader.leads()
        for kill in range(kills):
            standby = await stack.enter_async_context(yard.operator(*options))
            await until(partial(standby.answer, "/readyz"), lambda text: text == "standby")
            names += [f"job-{kill}-{number}" for number in range(8)]
            for name in names[-8:]:
                await yard.client.create(PYTORCH, pytorch_job(name), yard.namespace)
            await asyncio.sleep(rng.uniform(0.0, 3.0))  # the moment of death is what varies
            seen.append(await takeover(yard, leader, standby))
            leader = standby
        print(", ".join(f"{each.took:.2f} s (waited {each.waited:.2f})" for each in seen))
        for name in names:
            job = await yard.reaches(name, "Succeeded", seconds=600)
            assert job["status"]["backoffCount"] == 1
            assert len(job["status"]["attempts"]) == 2
        assert fate.doubled == []
        assert "Traceback" not in leader.log
    assert all(each.took <= lasts + 1 + each.waited for each in seen), seen


async def takeover(yard: Yard, leader: Operator, standby: Operator) -> Takeover:
    """Kill the leader, and wait until the standby leads."""
    pids = [standby.process.pid, *yard.plane.pids]
    waited, died_at = starved(pids), datetime.now(UTC)
    await leader.kill()
    await standby.leads()
    name = f"trainyard-controller-{yard.namespace}"
    lease = await yard.client.get(LEASES, name, yard.namespace)
    acquired_at = parse(lease["spec"]["acquireTime"])
    assert acquired_at is not None
    return Takeover((acquired_at - died_at).total_seconds(), starved(pids) - waited)


class Line:
    """Connections to the API server that can be cut, and stay cut."""

    def __init__(self, plane: RunningControlPlane) -> None:
        self._plane = plane
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = False

    @asynccontextmanager
    async def laid(self) -> AsyncIterator[int]:
        """The port at which the API server is reached."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            self.cut()
            server.close()
            await server.wait_closed()

    def cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.close()

    async def _connected(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        if self._is_cut:
            back.close()
            return
        far, forth = await asyncio.open_connection("127.0.0.1", self._plane.port)
        self._writers |= {back, forth}
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pass_on(near, forth))
            group.create_task(self._pass_on(far, back))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()
        self._writers.discard(writer)


async def test_a_leader_that_is_cut_off_ends_before_another_begins(yard: Yard) -> None:
    """Seen from outside, ten times a second: there are never two."""
    line = Line(yard.plane)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(line.laid())
        config = yard.plane.write_kubeconfig("far", ADMIN, port)
        first = await stack.enter_async_context(yard.operator(kubeconfig=config))
        await first.leads()
        second = await stack.enter_async_context(yard.operator())
        line.cut()
        seen: list[list[bool]] = []

        async def look() -> list[bool]:
            seen.append(await leaders([first, second]))
            return seen[-1]

        await until(look, lambda which: which == [False, True])
        assert [True, True] not in seen
        assert [True, False] in seen


async def test_a_leader_that_was_frozen_steps_down(yard: Yard) -> None:
    """It wakes with a Lease that another holds, and must not go on as if it had it."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(yard.operator())
        await first.leads()
        second = await stack.enter_async_context(yard.operator())
        kubelet = await stack.enter_async_context(running_kubelet(yard.client, yard.namespace))
        await yard.kubectl("apply", "-f", "-", stdin=json.dumps(pytorch_job("digits")))
        await yard.reaches("digits", "Running")
        first.process.send_signal(signal.SIGSTOP)
        await second.leads()
        await kubelet.end(kubelet.pod("digits", "worker-1"), 1)
        await until(lambda: yard.job("digits"), lambda job: job["status"].get("backoffCount") == 1)
        first.process.send_signal(signal.SIGCONT)
        await until(lambda: first.answer("/readyz"), lambda text: text == "standby")
        assert await leaders([first, second]) == [False, True]
        await until(lambda: _runs_again(yard), bool)
        await kubelet.end_all("digits", 0)
        job = await yard.reaches("digits", "Succeeded")
        assert job["status"]["backoffCount"] == 1
        assert len(kubelet.seen) == 4


async def _runs_again(yard: Yard) -> bool:
    pods = await yard.pods("digits")
    status = (await yard.job("digits"))["status"]
    return (
        len(pods) == 2
        and all(pod["status"]["phase"] == "Running" for pod in pods)
        and status["phase"] == "Running"
        and status["aggregate"]["running"] == 2
        and len(status["attempts"]) == 2
    )
