"""A real API server that is slow or busy, and operators whose clocks differ."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.cluster.gateway import Gateway
from tests.cluster.kubelet import running_kubelet
from tests.cluster.plane import ADMIN, starved
from tests.cluster.test_doctor import clear_of_leases, doctor
from tests.cluster.test_election import leaders
from tests.cluster.yard import PYTORCH, Operator, Yard, pytorch_job, until
from tests.tools import soak
from trainyard.kube.resources import LEASES

SECONDS = 900.0
_LEAST_STARVED = 2.5
"""Seconds: what answers that take half as long again leave of a renewal's time."""


@asynccontextmanager
async def operator_behind(gateway: Gateway, yard: Yard) -> AsyncIterator[Operator]:
    """An operator that reaches the API server through it."""
    async with gateway.open() as port:
        config = yard.plane.write_kubeconfig("behind", ADMIN, port)
        async with yard.operator(kubeconfig=config) as operator:
            yield operator


async def all_end(yard: Yard, jobs: int, seconds: float) -> None:
    """So many jobs end, and so much time passes."""
    begun = asyncio.get_running_loop().time()
    for number in range(jobs):
        await yard.client.create(PYTORCH, pytorch_job(f"job-{number}"), yard.namespace)

    async def succeeded() -> int:
        items, _ = await yard.client.list(PYTORCH, yard.namespace)
        return sum((job.get("status") or {}).get("phase") == "Succeeded" for job in items)

    await until(succeeded, lambda found: found == jobs, SECONDS)
    left = begun + seconds - asyncio.get_running_loop().time()
    await asyncio.sleep(max(0.0, left))  # the claim is about a length of time


async def keeps_its_lease(yard: Yard, gateway: Gateway, jobs: int, seconds: float) -> None:
    """While all of these jobs end."""
    async with (
        operator_behind(gateway, yard) as operator,
        running_kubelet(yard.client, yard.namespace, lambda pod: 0) as kubelet,
    ):
        await operator.leads()
        pids = [operator.process.pid, os.getpid(), *yard.plane.pids]
        waited = starved(pids)
        await all_end(yard, jobs, seconds)
        waited = starved(pids) - waited
        lease = await yard.client.get(
            LEASES, f"trainyard-controller-{yard.namespace}", yard.namespace
        )
        lost = operator.log.count("stopping all work")
        print(
            f"{gateway.passed_on} requests, {gateway.refusals} refused, Lease lost {lost} times, "
            f"waited for a CPU {waited:.1f} s"
        )
        # Once worker-0 has ended, worker-1 is not needed any more: there may be fewer, never two.
        assert len(kubelet.seen) == len(set(kubelet.seen.values())) >= jobs
        assert lease["spec"]["leaseTransitions"] == 0
        assert "Traceback" not in operator.log
        # On a machine that does not let it run, an operator may lose it; the work is done anyway.
        assert lost == 0 or waited > _LEAST_STARVED, operator.log[-4000:]


async def test_a_slow_api_server_costs_no_lease(yard: Yard) -> None:
    """Each answer takes 2.5 s."""
    gateway = Gateway(yard.plane)
    gateway.delay_seconds = 2.5
    await keeps_its_lease(yard, gateway, soak(6, 120), soak(15, 60))
    assert gateway.refusals == 0


async def test_a_busy_api_server_costs_no_lease(yard: Yard) -> None:
    """Three of ten requests are refused, to be sent again in a second."""
    gateway = Gateway(yard.plane)
    gateway.refused = 3
    await keeps_its_lease(yard, gateway, soak(12, 120), soak(15, 60))
    assert 0.25 < gateway.refusals / (gateway.refusals + gateway.passed_on) < 0.35


def clock(ahead: str) -> dict[str, str]:
    """The environment of a process whose clock is so far ahead; time that passes is as it is."""
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib"):
        library = Path(folder, "faketime/libfaketimeMT.so.1")
        if library.exists():
            names = {"LD_PRELOAD": str(library), "FAKETIME": ahead, "FAKETIME_NO_CACHE": "1"}
            return {**os.environ, **names, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    pytest.skip("not judged: no libfaketime (apt-get install libfaketime)")


async def test_clocks_that_differ_by_half_a_minute_make_one_leader(yard: Yard) -> None:
    """Twice the Lease's time and more. Whoever leads, and whoever comes: there are never two."""
    await clear_of_leases(yard)
    seen: list[list[bool]] = []
    async with AsyncExitStack() as stack:

        async def enter(ahead: str) -> Operator:
            return await stack.enter_async_context(yard.operator(environment=clock(ahead)))

        async def look(operators: list[Operator]) -> list[bool]:
            seen.append(await leaders(operators))
            return seen[-1]

        async def watch(operators: list[Operator], times: int) -> None:
            for _ in range(times):
                await look(operators)
                await asyncio.sleep(0.1)

        behind = await enter("+0s")
        await behind.leads()
        ahead = await enter("+30s")
        await until(lambda: ahead.answer("/readyz"), lambda text: text == "standby")
        await watch([behind, ahead], soak(60, 300))
        assert [False, True] not in seen, "a clock that is ahead takes no Lease that is held"
        await behind.kill()
        await until(lambda: look([ahead]), lambda which: which == [True])
        told = (await doctor(yard, code=1))["clock of the leader"][0]["text"]
        assert told.startswith(("30 s ahead", "29 s ahead", "28 s ahead", "27 s ahead")), told
        again = await enter("-30s")
        await until(lambda: again.answer("/readyz"), lambda text: text == "standby")
        await watch([ahead, again], soak(60, 300))
    assert [True, True] not in seen
    assert [False, True] not in seen
