"""Ending containers: preStop, SIGTERM, the grace period, SIGKILL."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

from trainyard.local.node.container_runtime import ContainerRuntime, RuntimeRefused
from trainyard.local.node.probes import Prober, run_hook
from trainyard.local.node.status import Run
from trainyard.shim import protocol

_SIGTERM = 15
_LOOK_SECONDS = 0.01
_KILL_SECONDS = 10.0


class Stopper:
    """Stops the containers of one pod; ``cut_short()`` tells that the grace is to end now."""

    def __init__(
        self, runtime: ContainerRuntime, pod: str, prober: Prober, cut_short: Callable[[], bool]
    ) -> None:
        self._runtime = runtime
        self._pod = pod
        self._prober = prober
        self._cut_short = cut_short

    async def stop_all(self, runs: Sequence[Run], address: str, grace: float) -> None:
        """Main containers first, then sidecars, all within ``grace`` seconds."""
        until = time.monotonic() + grace
        for sidecars in (False, True):
            async with asyncio.TaskGroup() as group:
                for run in runs:
                    if run.active and run.sidecar == sidecars:
                        left = max(0.0, until - time.monotonic())
                        group.create_task(self.stop(run, address, left))

    async def stop(self, run: Run, address: str, grace: float) -> None:
        """preStop, SIGTERM, and SIGKILL after ``grace`` seconds."""
        until, attempt = time.monotonic() + grace, run.attempt
        self._prober.stop(run.name)
        with contextlib.suppress(RuntimeRefused):
            if grace > 0:
                await self._pre_stop(run, address, grace)
                await self._runtime.request(protocol.Signal(self._pod, run.name, _SIGTERM))
                await self._end(run, attempt, until)
            if run.active and run.attempt == attempt:
                await self._runtime.request(protocol.Kill(self._pod, run.name))
                await self._end(run, attempt, time.monotonic() + _KILL_SECONDS)

    async def _pre_stop(self, run: Run, address: str, grace: float) -> None:
        hook = run.spec.get("lifecycle", {}).get("preStop")
        if hook:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await run_hook(self._runtime, self._pod, address, run, hook)

    async def _end(self, run: Run, attempt: int, until: float) -> None:
        while run.active and run.attempt == attempt and time.monotonic() < until:
            if self._cut_short():
                return
            await asyncio.sleep(_LOOK_SECONDS)
