"""Leader election by a Lease: one of several operators works.

The protocol is that of client-go (k8s.io/client-go/tools/leaderelection), so that `kubectl get
leases` reads as usual: a holder renews `renewTime`, and another takes over once it has not seen
the Lease change for `leaseDurationSeconds` of its own clock; clocks are never compared.
A lost Lease stops every write at once: the guarded work is cancelled, and it is cancelled by the
holder's own clock, before anyone else may take over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

from trainyard.kube.client import Client
from trainyard.kube.errors import Conflict, KubeError, NotFound
from trainyard.kube.resources import LEASES
from trainyard.operator.config.operator_settings import LeaseSettings
from trainyard.schema.times import render_micro

log = logging.getLogger(__name__)

_CHECKS_PER_RENEWAL = 4
"""How often a standby reads the Lease in the time between two renewals."""
_LEAST_PAUSE_SECONDS = 0.01
_TIMEOUT_FACTOR = 4
"""A timeout is so many times the last answer's time: taking a Lease takes two requests."""


class LeaderElection:
    """Competes for a Lease, and runs work only while it is held."""

    def __init__(
        self,
        client: Client,
        settings: LeaseSettings,
        now: Callable[[], datetime],
        *,
        identity: str = "",
    ) -> None:
        """`identity` must differ between processes; the default does."""
        self._client = client
        self._settings = settings
        self._now = now
        self.identity = identity or f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        self._seen: tuple[Any, ...] = ()
        self._seen_at = 0.0
        self._seen_seconds = settings.duration
        self._renewed_at = 0.0
        self._lease: dict[str, Any] | None = None
        """The Lease as this process wrote it last."""
        self.problem = ""
        """Why the last attempt failed; "" if it did not."""

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the Lease, then run `work()` until it is lost or cancelled; then again."""
        try:
            while True:
                await self._acquire()
                await self._lead(work)
        finally:
            await self._release()

    async def _acquire(self) -> None:
        self._lease = None
        loop, settings = asyncio.get_running_loop(), self._settings
        # A lost request must not outlast the Lease of a holder that died, but a slow server must
        # get the time that it needs.
        timeout = settings.renew_deadline
        while True:
            began_at = loop.time()
            try:
                async with asyncio.timeout(timeout):
                    if await self._try():
                        break
                wanted = timeout if self.problem else _TIMEOUT_FACTOR * (loop.time() - began_at)
            except TimeoutError:
                wanted = 2 * timeout
            timeout = min(max(wanted, settings.retry_period / 2), settings.renew_deadline)
            await asyncio.sleep(self._pause())
        log.info("%s leads", self.identity)

    def _pause(self) -> float:
        """Seconds until the next attempt: another holder's renewals are noticed soon, since its
        time counts from there, and the Lease is tried for as soon as it expires."""
        pause = self._settings.retry_period
        if not self._is_held_by_another():
            return pause
        left = self._seen_at + self._seen_seconds - asyncio.get_running_loop().time()
        if self.problem:  # a failing server is asked less often, but not later than necessary
            return min(pause, max(left, pause / _CHECKS_PER_RENEWAL))
        return min(pause / _CHECKS_PER_RENEWAL, max(left, _LEAST_PAUSE_SECONDS))

    async def _lead(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(work())
        try:
            await self._renew_while(task)
        finally:
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    async def _renew_while(self, task: asyncio.Task[None]) -> None:
        """Until the work ends or the Lease is lost."""
        loop, settings, tried_at = asyncio.get_running_loop(), self._settings, 0.0
        while not task.done():
            # A renewal counts from when it was requested. So with slow answers the next is
            # requested at once, and each has half of the deadline, so that a lost one can be
            # repeated.
            due = max(self._renewed_at, tried_at) + settings.retry_period - loop.time()
            await asyncio.wait([task], timeout=max(0.0, due))
            tried_at = loop.time()
            left = self._renewed_at + settings.renew_deadline - tried_at
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(left, settings.renew_deadline / 2))):
                    if not await self._try() and self._is_held_by_another():
                        log.warning("the lease was taken over; stopping all work")
                        return
            if loop.time() >= self._renewed_at + settings.renew_deadline:
                log.warning("the lease could not be renewed; stopping all work")
                return

    def _is_held_by_another(self) -> bool:
        return bool(self._seen) and self._seen[0] not in ("", self.identity)

    async def _try(self) -> bool:
        """Take or renew the Lease; whether it is held now."""
        try:
            is_leader = await self._take()
        except KubeError as error:
            if str(error) != self.problem:
                log.warning("lease %s: %s", self._settings.name, error)
            self.problem = str(error)
            return False
        self.problem = ""
        return is_leader

    async def _take(self) -> bool:
        settings = self._settings
        if self._lease is not None:
            try:
                await self._write(self._lease)
            except (Conflict, NotFound):  # somebody else has written it
                self._lease = None
            else:
                return True
        try:
            lease = await self._client.get(LEASES, settings.name, settings.namespace)
        except NotFound:
            lease = None
        spec = (lease or {}).get("spec") or {}
        if lease is not None:
            self._observe(spec)
            holder = spec.get("holderIdentity") or ""
            if holder not in ("", self.identity) and not self._is_expired(spec):
                return False
        await self._write(lease)
        return True

    async def _write(self, lease: dict[str, Any] | None) -> None:
        """Create or update the Lease with this process as holder, as of now."""
        settings, asked_at = self._settings, asyncio.get_running_loop().time()
        mine = self._spec((lease or {}).get("spec") or {})
        if lease is None:
            metadata = {"name": settings.name, "namespace": settings.namespace}
            body = {"metadata": metadata, "spec": mine, "kind": LEASES.kind}
            body["apiVersion"] = LEASES.api_version
            self._lease = await self._client.create(LEASES, body, settings.namespace)
        else:
            # The resourceVersion makes sure that only one of several operators succeeds.
            self._lease = await self._client.replace(LEASES, {**lease, "spec": mine})
        self._observe(mine)
        self._renewed_at = asked_at

    def _observe(self, spec: dict[str, Any]) -> None:
        seen = (spec.get("holderIdentity") or "", spec.get("renewTime"), spec.get("acquireTime"))
        if seen != self._seen:
            self._seen = seen
            self._seen_at = asyncio.get_running_loop().time()

    def _is_expired(self, spec: dict[str, Any]) -> bool:
        self._seen_seconds = float(spec.get("leaseDurationSeconds") or self._settings.duration)
        return asyncio.get_running_loop().time() >= self._seen_at + self._seen_seconds

    def _spec(self, before: dict[str, Any]) -> dict[str, Any]:
        now = render_micro(self._now())
        mine = before.get("holderIdentity") == self.identity
        transitions = int(before.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, int(self._settings.duration)),
            "acquireTime": before.get("acquireTime") if mine else now,
            "renewTime": now,
            "leaseTransitions": transitions if mine or not before else transitions + 1,
        }

    async def _release(self) -> None:
        """Give the Lease up, so that a successor need not wait."""
        if not self._seen or self._seen[0] != self.identity:
            return
        settings = self._settings
        try:
            async with asyncio.timeout(2.0):
                lease = await self._client.get(LEASES, settings.name, settings.namespace)
                if (lease.get("spec") or {}).get("holderIdentity") == self.identity:
                    spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._client.replace(LEASES, {**lease, "spec": spec})
        except (KubeError, TimeoutError) as error:
            log.info("lease %s not released: %s", settings.name, error)
