"""An operator process on a cluster: the controller, under leader election, with endpoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import replace

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trainyard.kube.client import Client
from trainyard.kube.errors import ApiError, KubeError
from trainyard.operator.controller import Clock, Controller, Host, wall_clock
from trainyard.operator.diary import Diary, RecordFile
from trainyard.operator.election import LeaderElection
from trainyard.operator.manifests import LEASE_RULE, rules
from trainyard.operator.records import JobKey
from trainyard.operator.rights import Rights
from trainyard.operator.settings import ServiceSettings

log = logging.getLogger(__name__)

# https://kubernetes.io/docs/reference/using-api/api-concepts/#field-validation
_STRICT_SINCE = (1, 25)
_RETRY_SECONDS = 2.0
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


class Service:
    """One operator process."""

    def __init__(
        self,
        client: Client,
        settings: ServiceSettings | None = None,
        *,
        now: Clock = wall_clock,
        lease_client: Client | None = None,
    ) -> None:
        """`lease_client`: one with connections of its own, so that the Lease waits for nothing."""
        self._client = client
        self._lease_client = lease_client or client
        self._settings = settings or ServiceSettings()
        self._now = now
        self._controller: Controller | None = None
        self._election: LeaderElection | None = None
        self._rights = self._rights_needed()
        self._diary: Diary | None = None
        self._metrics = _Metrics(lambda: self._controller)
        self.port = self._settings.port

    async def run(self) -> None:
        """Serve the endpoints and look after jobs, whenever it is this process's turn."""
        async with AsyncExitStack() as stack:
            if self._settings.record is not None:
                file = stack.enter_context(closing(RecordFile(self._settings.record)))
                self._diary = Diary(file, lambda: self._now().isoformat(), replayable=True)
            await stack.enter_async_context(self._endpoints())
            asking = asyncio.create_task(self._rights.run())
            try:
                await self._work()
            finally:
                asking.cancel()
                await asyncio.wait([asking])

    async def _work(self) -> None:
        if self._settings.lease is None:
            await self._control()
            return
        self._election = LeaderElection(self._lease_client, self._settings.lease, self._now)
        await self._election.run(self._control)

    def _rights_needed(self) -> Rights:
        operator, lease = self._settings.operator, self._settings.lease
        home = lease.namespace if lease else self._client.namespace
        wanted = {place: rules(operator) for place in operator.namespaces or (home,)}
        if lease is not None:
            wanted[home] = [*wanted.get(home, ()), LEASE_RULE]
        return Rights(self._client, wanted)

    async def _control(self) -> None:
        operator = self._settings.operator
        if operator.open_templates:
            operator = replace(operator, open_templates=await self._refuses_unknown_fields())
        self._controller = Controller(
            self._client,
            operator,
            Host(
                self._now,
                passed=self._metrics.passed,
                drains_events=self._settings.lease is None,
                diary=self._diary,
            ),
        )
        try:
            await self._controller.run()
        finally:
            self._controller = None

    async def _refuses_unknown_fields(self) -> bool:
        """Whether the server keeps to fieldValidation=Strict; an older one drops what it does not
        know, and a replica would run without what the user asked for (decision 1)."""
        while True:
            try:
                return await self._client.server_version() >= _STRICT_SINCE
            except ApiError as error:
                log.warning("%s; it is taken for a current one", error)
                return True
            except KubeError as error:
                log.warning("%s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    @asynccontextmanager
    async def _endpoints(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._serve_metrics)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._settings.host, self._settings.port)
            await site.start()
            self.port = runner.addresses[0][1]
            log.info("serving /healthz, /readyz and /metrics on port %d", self.port)
            yield
        finally:
            async with asyncio.timeout(5.0):
                await runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _readyz(self, request: web.Request) -> web.Response:
        """Ready on standby too: a Deployment must not wait for a second leader."""
        problems = [*self._rights.missing]
        if self._election is not None and self._election.problem:
            problems.append(self._election.problem)
        if self._controller is not None:
            problems += self._controller.problems
        if problems:
            return web.Response(status=503, text="\n".join(problems))
        if self._controller is not None and not self._controller.is_synced:
            return web.Response(status=503, text="the first lists are still under way")
        return web.Response(text="standby" if self._controller is None else "leading")

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": _CONTENT_TYPE})


class _Metrics:
    """What a process counts, and what it reads from its controller when asked.

    `controller` returns the controller at work, or None on a standby.
    """

    def __init__(self, controller: Callable[[], Controller | None]) -> None:
        self.registry = CollectorRegistry()
        self._passes = Counter(
            "trainyard_passes",
            "Passes over jobs, by how they ended.",
            ["job_kind", "result"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "trainyard_pass_seconds",
            "Time that a pass took, requests included.",
            ["job_kind"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.registry.register(_State(controller))

    def passed(self, key: JobKey, result: str, seconds: float) -> None:
        """Count one pass."""
        self._passes.labels(key.kind, result).inc()
        self._seconds.labels(key.kind).observe(seconds)

    def text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self.registry)


class _State(Collector):
    """Gauges that are read from the cache instead of being kept up to date."""

    def __init__(self, controller: Callable[[], Controller | None]) -> None:
        self._controller = controller

    def collect(self) -> Iterator[Metric]:
        controller = self._controller()
        leader = GaugeMetricFamily("trainyard_leader", "Whether this process does the work.")
        leader.add_metric([], 0.0 if controller is None else 1.0)
        yield leader
        if controller is None:
            return
        depth = GaugeMetricFamily("trainyard_queue_depth", "Jobs that wait for a pass.")
        depth.add_metric([], float(len(controller.queue)))
        yield depth
        phases = GaugeMetricFamily(
            "trainyard_job_phase",
            "1 for the phase that each job is in.",
            labels=["job_kind", "job_name", "job_uid", "namespace", "phase"],
        )
        for store in controller.jobs.values():
            for job in store:
                if not job.kind.is_job or not controller.looks_after(job.namespace):
                    continue
                phase = str((job.status or {}).get("phase") or "Pending")
                labels = [job.kind.kind, job.name, job.uid, job.namespace, phase]
                phases.add_metric(labels, 1.0)
        yield phases
