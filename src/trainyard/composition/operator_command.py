"""Runs the operator against a cluster, with settings from flags, environment and a file."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.composition.garbage_collection import collect_garbage_again
from trainyard.kube.client import Client
from trainyard.kube.credentials import own_namespace
from trainyard.operator.config.settings_loader import EffectiveSettings, PodEnvironment
from trainyard.operator.config.settings_loader import InvalidSettings as InvalidSettings
from trainyard.schema.errors import TrainyardError

if TYPE_CHECKING:
    from trainyard.operator.config.operator_settings import ServiceSettings
    from trainyard.operator.operator_process import OperatorProcess

_FIRST_LISTS_SECONDS = 60.0
_REQUIRED_PACKAGES = ("uvloop", "prometheus_client")


def load_settings(config: Path | None, flags: Mapping[str, str]) -> EffectiveSettings:
    """Read the settings: flags, by setting and as texts, win over variables, then the file.

    Raises InvalidSettings with every problem.
    """
    return EffectiveSettings(
        flags, os.environ, config, PodEnvironment(own_namespace(), _resolv_conf())
    )


def run_operator(kubeconfig: str | None, context: str | None, settings: ServiceSettings) -> None:
    """Look after the jobs of a cluster until SIGTERM or SIGINT."""
    for name in _REQUIRED_PACKAGES:
        if find_spec(name) is None:
            raise TrainyardError(
                f"the operator needs {name}, which is not installed here: pip install "
                "'trainyard-jobs[operator]' (on Windows, in WSL 2)"
            )
    import uvloop

    from trainyard.operator.operator_logging import configure_logging

    configure_logging(sys.stderr, settings.log_level, settings.log_format)
    uvloop.run(_run(kubeconfig, context, settings))


def _resolv_conf() -> str:
    try:
        return Path("/etc/resolv.conf").read_text(errors="replace")
    except OSError:
        return ""


async def _run(kubeconfig: str | None, context: str | None, settings: ServiceSettings) -> None:
    from trainyard.operator.operator_process import OperatorProcess

    async with (
        await Client.paced(kubeconfig, context, settings.api) as client,
        await Client.from_kubeconfig(kubeconfig, context) as lease_client,
    ):
        service = OperatorProcess(client, settings, lease_client=lease_client)
        serving = asyncio.ensure_future(service.run())
        collecting = asyncio.ensure_future(_collect_garbage_later(service))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            # Ending in order hands the Lease over at once.
            loop.add_signal_handler(number, serving.cancel)
        await asyncio.wait([serving])
        collecting.cancel()
        if not serving.cancelled():
            serving.result()


async def _collect_garbage_later(service: OperatorProcess) -> None:
    """Leave collection off until the first lists are read: what they make stays, and looking
    through it again and again took a quarter of a cold start (decision 186)."""
    gc.disable()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LISTS_SECONDS):
                await service.until_synced()
    finally:
        gc.collect()
        collect_garbage_again()
