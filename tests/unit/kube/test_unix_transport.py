"""The way to the embedded API server: one that hangs is told while it does, and named."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import pytest

from trainyard.kube import unix_transport
from trainyard.kube.errors import Unreachable
from trainyard.kube.transport import Request
from trainyard.kube.unix_transport import UnixTransport


@pytest.mark.parametrize("streams", [False, True])
async def test_a_server_that_hangs_is_told_in_a_line_and_named_in_the_error(
    tmp_path: Path,
    streams: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unix_transport, "_PATIENCE_SECONDS", 0.05)
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as listener, caplog.at_level(logging.WARNING):
        listener.bind(str(path))
        listener.listen()
        transport = UnixTransport(path)
        request = Request("GET", "/x")
        with pytest.raises(Unreachable, match=f"process {os.getpid()} hangs.*kill -9"):
            await (open_stream if streams else UnixTransport.request)(transport, request, 0.3)
        await transport.aclose()
    (line,) = caplog.messages
    assert line == f"the cluster (process {os.getpid()}) has not answered for 0.05 s"


async def open_stream(transport: UnixTransport, request: Request, seconds: float) -> None:
    async with transport.stream(request, seconds):
        pass
