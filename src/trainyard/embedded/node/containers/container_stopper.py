"""Stops containers: preStop hook, SIGTERM, the grace period, SIGKILL."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Sequence

from trainyard.embedded.node.container_runtime import RuntimeRefused
from trainyard.embedded.node.containers.container_probes import Prober, ProbeTarget, run_hook
from trainyard.embedded.node.pods.pod_status import ContainerRun
from trainyard.podruntime import protocol

_LOOK_SECONDS = 0.01
_KILL_SECONDS = 10.0


class ContainerStopper:
    """Stops the containers of one pod; ``is_killed_now()`` ends the grace period at once.

    ``outlasts(name)`` is called when a container is still there at the end of its grace period.
    """

    def __init__(
        self,
        prober: Prober,
        is_killed_now: Callable[[], bool],
        outlasts: Callable[[str], None],
    ) -> None:
        self._prober = prober
        self._is_killed_now = is_killed_now
        self._outlasts = outlasts

    async def stop_all(self, targets: Sequence[ProbeTarget], grace: float) -> None:
        """Main containers first, then sidecars, all within ``grace`` seconds."""
        until = time.monotonic() + grace
        for sidecars in (False, True):
            async with asyncio.TaskGroup() as group:
                for target in targets:
                    if target.run.is_active and target.run.is_sidecar == sidecars:
                        left = max(0.0, until - time.monotonic())
                        group.create_task(self.stop(target, left))

    async def stop(self, target: ProbeTarget, grace: float) -> None:
        """preStop, SIGTERM, and SIGKILL after ``grace`` seconds."""
        runtime, pod, _, run = target
        until, attempt = time.monotonic() + grace, run.attempt
        self._prober.stop(run.name)
        with contextlib.suppress(RuntimeRefused):
            if grace > 0:
                if hook := run.spec.get("lifecycle", {}).get("preStop"):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(grace):
                            await run_hook(target, hook)
                await runtime.request(protocol.Signal(pod, run.name, signal.SIGTERM))
                await self._wait_for_exit(run, attempt, until)
            if run.is_active and run.attempt == attempt:
                if grace > 0 and not self._is_killed_now():
                    self._outlasts(run.name)
                await runtime.request(protocol.Kill(pod, run.name))
                await self._wait_for_exit(run, attempt, time.monotonic() + _KILL_SECONDS)

    async def _wait_for_exit(self, run: ContainerRun, attempt: int, until: float) -> None:
        while run.is_active and run.attempt == attempt and time.monotonic() < until:
            if self._is_killed_now():
                return
            await asyncio.sleep(_LOOK_SECONDS)
