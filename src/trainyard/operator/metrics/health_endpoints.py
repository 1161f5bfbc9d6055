"""The HTTP endpoints of an operator process: liveness, readiness and metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from trainyard.operator.metrics.operator_metrics import OperatorMetrics

log = logging.getLogger(__name__)

Readiness = Callable[[], tuple[bool, str]]
"""Returns whether the process is ready, and the text to answer with."""


class HealthEndpoints:
    """`/healthz`, `/readyz` and `/metrics`; `port` 0 is replaced by a free one when served."""

    def __init__(
        self, host: str, port: int, readiness: Readiness, metrics: OperatorMetrics | None
    ) -> None:
        """`metrics` None: they are served on the secure port only."""
        self._host = host
        self.port = port
        self._readiness = readiness
        self._metrics = metrics

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve them while the block runs."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._serve_metrics)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, self.port)
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
        ready, text = self._readiness()
        return web.Response(status=200 if ready else 503, text=text)

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        if self._metrics is None:
            return web.Response(status=403, text="metricsSecure: over TLS, on the port metricsPort")
        return metrics_response(self._metrics, request)


def metrics_response(metrics: OperatorMetrics, request: web.Request) -> web.Response:
    """The metrics, in the format that the Accept header asks for."""
    body, content_type = metrics.expose(request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": content_type})
