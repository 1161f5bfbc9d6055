"""Runs the controller of an embedded cluster: in the cluster's process, or in one of its own.

`trainyard chaos` uses the latter, so that the controller can be killed alone:
`python -m trainyard.composition.controller_process SOCKET LISTENER PLAIN`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainyard.embedded.tls_files import write_private
from trainyard.kinds.shared.job_settings import Settings
from trainyard.kube.client import Client
from trainyard.kube.transport import Transport
from trainyard.kube.unix_transport import UnixTransport
from trainyard.machine.ownership import check_secret
from trainyard.machine.state_folder import FILE_FORMAT, Paths, state_folder
from trainyard.operator import embedded_operator
from trainyard.operator.channel.channel_ca import ChannelCA, issue_channel_ca
from trainyard.operator.channel.report_channel import ReportChannel
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.runtime_context import wall_clock
from trainyard.schema.errors import TrainyardError

_CHANNEL_HOSTS = ("10.244.0.1", "127.0.0.1")
"""Where pods reach the controller: with namespaces, and without."""
_SETTLED_SECONDS = 5.0
"""A controller that ends sooner will not do better when it is started again."""
_log = logging.getLogger(__name__)


async def run_controller(
    transport: Transport, listener: socket.socket | None, *, is_plain: bool, ready: asyncio.Event
) -> None:
    """Look after all jobs of the API server behind `transport` until cancelled.

    Pods report to `listener`. `ready` is set once the cluster has been read.
    """
    lifecycle, channel = Settings.local(plain_processes=is_plain), None
    if listener is not None:
        channel = (_channel(), listener)
        address = "{}:{}".format(*listener.getsockname())
        lifecycle = replace(lifecycle, channel_address=address)
    settings = OperatorSettings.local(lifecycle)
    async with Client(transport) as client:
        await embedded_operator.run(client, settings, ready=ready, channel=channel)


async def run_controller_process(
    path: str, listener: socket.socket | None, *, is_plain: bool, ready: asyncio.Event
) -> None:
    """Run the controller in a process of its own, and start another one whenever it ends
    (decision 244). `path` is the socket of the API server.

    Raises TrainyardError when one ends within its first seconds.
    """
    while True:
        started = time.monotonic()
        code = await _run_process(path, listener, is_plain=is_plain, ready=ready)
        text = f"the controller's process has ended with {code}"
        if time.monotonic() - started < _SETTLED_SECONDS:
            raise TrainyardError(text)
        _log.warning("%s; another one starts", text)


async def _run_process(
    path: str, listener: socket.socket | None, *, is_plain: bool, ready: asyncio.Event
) -> int:
    """Run one process to its end; return its exit code."""
    descriptors = () if listener is None else (listener.fileno(),)
    arguments = [path, str(descriptors[0] if descriptors else -1), "plain" if is_plain else ""]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        pass_fds=descriptors,
    )
    try:
        assert process.stdout is not None
        if await process.stdout.readline():
            ready.set()
        return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _channel() -> ReportChannel:
    path = Paths(state_folder()).channel

    async def renew() -> ChannelCA:
        return channel_authority(path)

    return ReportChannel(channel_authority(path), renew)


def channel_authority(path: Path) -> ChannelCA:
    """Read the authority of earlier clusters, whose pods may live on; renew it when it is due."""
    found = None
    with suppress(OSError, ValueError):
        check_secret(path)
        found = ChannelCA.from_files(json.loads(path.read_bytes()))
    if found is not None and found.is_valid_for(_CHANNEL_HOSTS, wall_clock()):
        return found
    made = issue_channel_ca(_CHANNEL_HOSTS, found, wall_clock())
    with suppress(OSError):  # else it is good for this cluster's life
        write_private(path, json.dumps({"format": FILE_FORMAT, **made.files}).encode())
    return made


async def _main(path: str, listener: str, plain: str) -> None:
    async def report_ready() -> None:
        await ready.wait()
        print("ready", flush=True)

    ready = asyncio.Event()
    reports = None if listener == "-1" else socket.socket(fileno=int(listener))
    async with asyncio.TaskGroup() as group:
        group.create_task(report_ready())
        transport = UnixTransport(path)
        group.create_task(run_controller(transport, reports, is_plain=bool(plain), ready=ready))


if __name__ == "__main__":
    import uvloop

    from trainyard.composition.cluster_log import log_to
    from trainyard.podruntime.syscalls import die_with_parent

    die_with_parent()
    log_to(sys.stderr)
    uvloop.run(_main(*sys.argv[1:]))
