"""An operator process on a cluster: a controller under leader election, with its endpoints."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from trainyard.kinds.shared.job_settings import Settings
from trainyard.kube.client import Client
from trainyard.kube.errors import ApiError, Forbidden, KubeError
from trainyard.operator.channel.channel_credentials import (
    ChannelCredentials,
    LeaderEndpoint,
    service_from_address,
)
from trainyard.operator.channel.report_channel import ReportChannel
from trainyard.operator.channel.report_router import ReportRouter
from trainyard.operator.config.operator_settings import (
    LeaseSettings,
    OperatorSettings,
    ServiceSettings,
)
from trainyard.operator.gang_detection import detect_gang_scheduler
from trainyard.operator.install.missing_permissions import PermissionMonitor
from trainyard.operator.install.rbac_rules import (
    REVIEW_RULES,
    Rule,
    lease_namespace_rules,
    rules_for,
)
from trainyard.operator.leader_election import LeaderElection
from trainyard.operator.metrics.health_endpoints import HealthEndpoints
from trainyard.operator.metrics.operator_metrics import OperatorMetrics
from trainyard.operator.metrics.secure_metrics import SecureMetrics
from trainyard.operator.reconcile.controller import Controller
from trainyard.operator.reconcile.planner import preload_kinds
from trainyard.operator.reconcile.reconcile_log import ReconcileLog, RecordFile
from trainyard.operator.runtime_context import (
    Clock,
    RuntimeContext,
    wall_clock,
    wall_clock_offset,
)

log = logging.getLogger(__name__)

# https://kubernetes.io/docs/reference/using-api/api-concepts/#field-validation
_STRICT_SINCE = (1, 25)
_RETRY_SECONDS = 2.0


class OperatorProcess:
    """Wires the parts of one operator process together and runs them."""

    def __init__(
        self,
        client: Client,
        settings: ServiceSettings | None = None,
        *,
        now: Clock = wall_clock,
        lease_client: Client | None = None,
    ) -> None:
        """`lease_client` has connections of its own, so that renewals wait for no other request."""
        self._settings = settings or ServiceSettings()
        self._now = now
        self._controller: Controller | None = None
        self._prepared = asyncio.Event()
        self._election: LeaderElection | None = None
        self._metrics = OperatorMetrics(
            self._working_controller,
            self._problems,
            now,
            has_job_series=self._settings.has_job_series,
        )
        self._client = client.with_metrics(self._metrics.requested)
        self._lease_client = (lease_client or client).with_metrics(self._metrics.requested)
        self._permissions = PermissionMonitor(
            self._client, self._required_rules(self._settings.operator)
        )
        self._reconcile_log: ReconcileLog | None = None
        self._channel: ReportChannel | None = None
        plain = None if self._settings.metrics_secure else self._metrics
        self._endpoints = HealthEndpoints(
            self._settings.host, self._settings.port, self._readiness, plain
        )

    @property
    def port(self) -> int:
        """The port of the endpoints, once they are served."""
        return self._endpoints.port

    async def run(self) -> None:
        """Serve the endpoints, and reconcile jobs whenever this process leads."""
        async with AsyncExitStack() as stack:
            if self._settings.record is not None:
                file = stack.enter_context(closing(RecordFile(self._settings.record)))
                self._reconcile_log = ReconcileLog(file, self._timestamp, replayable=True)
            await stack.enter_async_context(self._endpoints.serving())
            if self._settings.metrics_secure:
                await stack.enter_async_context(self._secure_metrics().serving())
            asking = asyncio.create_task(self._permissions.run())
            try:
                await self._work()
            finally:
                asking.cancel()
                await asyncio.wait([asking])

    def _timestamp(self) -> str:
        return self._now().isoformat()

    def _secure_metrics(self) -> SecureMetrics:
        settings = self._settings
        folder = Path(settings.metrics_certificates) if settings.metrics_certificates else None
        port = settings.metrics_port
        return SecureMetrics(self._client, settings.host, port, folder, self._metrics)

    async def _work(self) -> None:
        controller = self._controller = await self._prepare()
        self._prepared.set()
        lease = self._settings.lease
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            group.create_task(controller.watch())
            if self._channel is not None:
                place = (self._settings.host, self._settings.channel.port)
                end = stack.enter_context(socket.create_server(place, reuse_port=False))
                group.create_task(self._channel.serve(end, ReportRouter(controller)))
            if lease is None:
                await self._lead(controller)
                return
            # A process that has filled its caches is the better leader: give it precedence.
            with suppress(TimeoutError):
                async with asyncio.timeout(lease.duration):
                    await controller.synced.wait()
            self._election = LeaderElection(self._lease_client, lease, self._now)
            await self._election.run(partial(self._lead, controller))

    async def _lead(self, controller: Controller) -> None:
        await controller.synced.wait()
        async with asyncio.TaskGroup() as group:
            if self._channel is not None and (endpoint := self._leader_endpoint()) is not None:
                group.create_task(endpoint.maintain())
            group.create_task(controller.work())

    def _leader_endpoint(self) -> LeaderEndpoint | None:
        channel = self._settings.channel
        service = service_from_address(self._settings.operator.lifecycle.channel_address)
        if service is None or not channel.endpoint:
            return None
        return LeaderEndpoint(self._client, *service, channel.endpoint, channel.port)

    async def _open_channel(self) -> ReportChannel | None:
        """The channel with its CA; None where pods do not report."""
        address = self._settings.operator.lifecycle.channel_address
        if not address:
            return None
        lease, host = self._settings.lease, address.rpartition(":")[0]
        credentials = ChannelCredentials(
            self._client,
            lease.namespace if lease else self._client.namespace,
            f"{lease.name if lease else LeaseSettings().name}-channel",
            (host, "localhost", "127.0.0.1"),
            self._now,
        )
        while True:
            try:
                return ReportChannel(
                    await credentials.load_or_issue(),
                    credentials.load_or_issue,
                    self._metrics.reported,
                )
            except KubeError as error:
                log.warning("pods cannot report: %s", error)
                if isinstance(error, Forbidden):
                    return None
                await asyncio.sleep(_RETRY_SECONDS)

    def _required_rules(self, operator: OperatorSettings) -> Mapping[str, Sequence[Rule]]:
        """The rules that the operator needs, by namespace."""
        lease = self._settings.lease
        home = lease.namespace if lease else self._client.namespace
        wanted = {place: rules_for(operator) for place in operator.namespaces or (home,)}
        if lease is not None:
            wanted[home] = [*wanted.get(home, ()), *lease_namespace_rules(operator)]
        if self._settings.metrics_secure:
            wanted[home] = [*wanted.get(home, ()), *REVIEW_RULES]
        return wanted

    async def _prepare(self) -> Controller:
        operator = self._settings.operator
        if operator.open_templates:
            operator = replace(operator, open_templates=await self._server_refuses_unknown_fields())
        operator = replace(operator, lifecycle=await self._detect_scheduler(operator.lifecycle))
        self._permissions.require(self._required_rules(operator))
        preload_kinds()
        self._channel = await self._open_channel()
        if self._channel is None:
            lifecycle = replace(operator.lifecycle, channel_address="")
            operator = replace(operator, lifecycle=lifecycle)
        return Controller(
            self._client,
            operator,
            RuntimeContext(
                self._now,
                instrumentation=self._metrics,
                flushes_events=self._settings.lease is None,
                reconcile_log=self._reconcile_log,
                clock_offset=wall_clock_offset,
                channel=self._channel,
            ),
        )

    async def until_synced(self) -> None:
        """Wait until the caches are filled."""
        await self._prepared.wait()
        if self._controller is not None:
            await self._controller.synced.wait()

    async def _detect_scheduler(self, lifecycle: Settings) -> Settings:
        while True:
            try:
                return await detect_gang_scheduler(self._client, lifecycle)
            except KubeError as error:
                log.warning("%s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _server_refuses_unknown_fields(self) -> bool:
        """Whether the server implements fieldValidation=Strict. An older one drops unknown fields,
        and a replica would run without what the user asked for (decision 1)."""
        while True:
            try:
                return await self._client.server_version() >= _STRICT_SINCE
            except ApiError as error:
                log.warning("%s; it is taken for a current one", error)
                return True
            except KubeError as error:
                log.warning("%s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    def _problems(self) -> list[str]:
        """What the operator needs and cannot reach."""
        problems = [*self._permissions.missing]
        if self._election is not None and self._election.problem:
            problems.append(self._election.problem)
        if self._controller is not None:
            problems += self._controller.problems
        return problems

    def _readiness(self) -> tuple[bool, str]:
        """A standby is ready too: a Deployment must not wait for a second leader."""
        if problems := self._problems():
            return False, "\n".join(problems)
        if self._controller is not None and not self._controller.synced.is_set():
            return False, "the first lists are still under way"
        return True, "standby" if self._working_controller() is None else "leading"

    def _working_controller(self) -> Controller | None:
        """The controller if it leads, else None."""
        controller = self._controller
        return controller if controller is not None and controller.is_working else None
