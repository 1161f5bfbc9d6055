"""Runs the only controller of an embedded cluster, without leader election and endpoints."""

from __future__ import annotations

import asyncio
import socket

from trainyard.kube.client import Client
from trainyard.operator.channel.report_channel import ReportChannel
from trainyard.operator.channel.report_router import ReportRouter
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.reconcile.controller import Controller
from trainyard.operator.runtime_context import (
    Clock,
    RuntimeContext,
    wall_clock,
    wall_clock_offset,
)


async def run(
    client: Client,
    settings: OperatorSettings | None = None,
    *,
    now: Clock = wall_clock,
    ready: asyncio.Event | None = None,
    channel: tuple[ReportChannel, socket.socket] | None = None,
) -> None:
    """Reconcile all jobs until cancelled; `ready` is set once the caches are filled.

    `channel`: the report channel, and the socket on which it listens.
    """
    context = RuntimeContext(
        now, clock_offset=wall_clock_offset, channel=channel[0] if channel else None
    )
    controller = Controller(client, settings or OperatorSettings(), context)
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.run(ready))
        if channel is not None:
            group.create_task(channel[0].serve(channel[1], ReportRouter(controller)))
