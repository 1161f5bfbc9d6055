"""The agent's end of the connection to the shim."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from trainyard.embedded.node import pod_runtime_process
from trainyard.embedded.node.pod_runtime_client import PodRuntimeClient
from trainyard.embedded.node.pod_runtime_process import PodRuntimeFailed, PodRuntimeHandle
from trainyard.podruntime import protocol, wire


def test_a_shim_that_does_not_answer_is_named_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_runtime_process, "_READY_SECONDS", 0.05)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(PodRuntimeFailed, match=f"kill -9 {os.getpid()}"):
        PodRuntimeHandle(str(tmp_path), ours, pid=0, adopted=True).ready()


def test_a_shim_whose_folder_does_not_arrive_has_failed() -> None:
    """As where no more files may be open."""
    ours, theirs = socket.socketpair()
    hello = protocol.Hello(1, "plain", "", "", (), protocol.VERSION, descriptors=1)
    theirs.sendall(wire.encode(protocol.event(hello)))
    with pytest.raises(
        PodRuntimeFailed, match="0 of 1 descriptors arrived; the limit of open files"
    ):
        PodRuntimeHandle("", ours, 0).ready()
    ours.close()
    theirs.close()


async def test_descriptors_come_with_a_message_that_has_to_wait_for_a_long_one() -> None:
    """Nothing is read while both are sent, so that the long one fills the socket."""
    ours, theirs = socket.socketpair()
    theirs.sendall(
        wire.encode(protocol.event(protocol.Hello(1, "plain", "", "", (), protocol.VERSION)))
    )
    client = PodRuntimeClient(PodRuntimeHandle("", ours, 0))
    reader, writer = os.pipe()
    long = protocol.Exec("pod", "main", "1", ("true", "x" * 3_000_000), tty=False)
    short = protocol.Exec("pod", "main", "2", ("true",), tty=True)
    asked = [
        asyncio.create_task(client.request(long)),
        asyncio.create_task(client.request(short, (writer,))),
    ]
    try:
        await asyncio.sleep(0)
        os.close(writer)
        theirs.setblocking(False)
        decoder = wire.Decoder()
        frames: list[bytes] = []
        async with asyncio.timeout(120):
            while len(frames) < 2:
                frames += decoder.receive(theirs) or ()
                await asyncio.sleep(0)
        (found,) = decoder.take_descriptors(1)
        os.write(found, b"x")
        os.close(found)
        assert os.read(reader, 2) == b"x"
        assert os.read(reader, 1) == b"", "nobody else holds it"
    finally:
        client.close()
        await asyncio.gather(*asked, return_exceptions=True)
        theirs.close()
        os.close(reader)
