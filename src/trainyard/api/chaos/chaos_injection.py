"""How each fault is done to a job of a cluster, and undone."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from trainyard.api.chaos.chaos_cluster import BrokenCluster
from trainyard.api.chaos.chaos_report import Struck
from trainyard.api.chaos.chaos_schedule import Fault
from trainyard.embedded.chaos_faults.network_cut import cut_off
from trainyard.embedded.chaos_faults.target_processes import (
    TargetReplica,
    find_replicas,
    is_alive,
    send_signal,
)
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from trainyard.payloads.processes import Process

_LOOK_SECONDS = 0.1
_CYCLE_SECONDS = 0.2
_SLOW_SHARE = 0.5
"""Of each cycle, for which a slow rank is stopped."""


class Missed(TrainyardError):
    """There was nobody to hit, or it cannot be done here."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """In seconds."""

    lasting: float
    """Of a fault that is undone after a while."""
    patience: float
    """After which a hang is ended that nobody else ends."""


class Strikes:
    """Does faults to the pods of one job."""

    def __init__(
        self,
        cluster: BrokenCluster,
        lengths: Lengths,
        hosts: Callable[[], dict[str, str]],
    ) -> None:
        """`hosts` are those of the pods that run now, with the names of their replicas."""
        self._cluster, self._lengths, self._hosts = cluster, lengths, hosts
        self._ways: dict[Fault, Callable[[Struck, float], Awaitable[None]]] = {
            Fault.KILL: self._kill,
            Fault.STOP: self._stop,
            Fault.HANG: self._hang,
            Fault.SLOW: self._slow,
            Fault.PARTITION: self._partition,
            Fault.CONTROLLER: self._controller,
            Fault.SERVER: self._server,
            Fault.DISK: self._disk,
        }

    async def strike(self, struck: Struck, draw: float) -> None:
        """Do it and, where that has to be, undo it; fills in whom it hit and for how long.

        Raises Missed where nobody is there to hit.
        """
        started = time.monotonic()
        try:
            await self._ways[Fault(struck.fault)](struck, draw)
        finally:
            struck.seconds = time.monotonic() - started

    def _chosen(self, struck: Struck, draw: float) -> TargetReplica:
        hosts = self._hosts()
        replicas = find_replicas(self._cluster.pod_runtime, hosts)
        if not replicas:
            raise Missed("no replica runs")
        found = replicas[int(draw * len(replicas))]
        rank = f", rank {found.rank}" if found.rank else ""
        struck.target = f"{hosts[found.host]}{rank}"
        return found

    async def _kill(self, struck: Struck, draw: float) -> None:
        replica = self._chosen(struck, draw)
        if not send_signal([replica.main], signal.SIGKILL):
            raise Missed("the replica has just ended")

    async def _stop(self, struck: Struck, draw: float) -> None:
        async with _stopped(self._chosen(struck, draw).processes):
            await asyncio.sleep(self._lengths.lasting)

    async def _hang(self, struck: Struck, draw: float) -> None:
        rank = self._chosen(struck, draw).main
        async with _stopped([rank]):
            with suppress(TimeoutError):
                async with asyncio.timeout(self._lengths.patience):
                    await _end_of(rank)
            if is_alive(rank):
                struck.seen.append("nobody has ended the hang; it was ended from here")

    async def _slow(self, struck: Struck, draw: float) -> None:
        rank = self._chosen(struck, draw).main
        end = time.monotonic() + self._lengths.lasting
        while is_alive(rank) and time.monotonic() < end:
            async with _stopped([rank]):
                await asyncio.sleep(_CYCLE_SECONDS * _SLOW_SHARE)
            await asyncio.sleep(_CYCLE_SECONDS * (1 - _SLOW_SHARE))

    async def _partition(self, struck: Struck, draw: float) -> None:
        replica = self._chosen(struck, draw)
        async with cut_off(replica.main, self._cluster.pod_runtime):
            await asyncio.sleep(self._lengths.lasting)

    async def _controller(self, struck: Struck, draw: float) -> None:
        killed = await asyncio.to_thread(self._cluster.kill_controller)
        if killed is None:
            raise Missed("no controller runs")
        struck.target = f"process {killed}"

    async def _server(self, struck: Struck, draw: float) -> None:
        struck.target = f"process {self._cluster.pid}, with the controller"
        await asyncio.to_thread(self._cluster.kill)
        await asyncio.to_thread(self._cluster.bring_up)

    async def _disk(self, struck: Struck, _: float) -> None:
        assert self._cluster.disk is not None
        struck.target = "the claims"
        async with self._cluster.disk.keep_full():
            await asyncio.sleep(self._lengths.lasting)


async def _end_of(process: Process) -> None:
    while is_alive(process):  # noqa: ASYNC110 - nothing tells us of the end of a process of others
        await asyncio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def _stopped(processes: Iterable[Process]) -> AsyncIterator[None]:
    """For the block, and not a moment longer."""
    chosen = list(processes)
    try:
        if not send_signal(chosen, signal.SIGSTOP):
            raise Missed("the replica has just ended")
        yield
    finally:
        send_signal(chosen, signal.SIGCONT)


def refusal(fault: Fault, isolation: str) -> str:
    """Why a fault cannot be done to pods that are so separated; "" if it can."""
    if fault == Fault.PARTITION and isolation == "plain":
        return "pods are plain processes here, in the network of the machine"
    return ""
