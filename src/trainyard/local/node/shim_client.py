"""The agent's side of the shim's socket: requests with answers, and a stream of events."""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import Any

from trainyard.local.node.shim_process import ShimHandle
from trainyard.schema.errors import TrainyardError
from trainyard.shim import wire

_ANSWER_SECONDS = 30.0


class ShimError(TrainyardError):
    """The shim refused a request, or is gone."""


class ShimClient:
    """Must be made and used on the event loop's thread."""

    def __init__(self, handle: ShimHandle) -> None:
        self.hello = handle.ready()
        self.events: asyncio.Queue[wire.Message | None] = asyncio.Queue()
        self.sessions: dict[str, asyncio.Future[int]] = {}
        self._socket = handle.connection
        self._socket.setblocking(False)
        self._decoder = handle.decoder
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[wire.Message]] = {}
        self._outgoing = bytearray()
        self._loop = asyncio.get_running_loop()
        self._closed = False
        for message in handle.early:
            self._dispatch(message)
        self._loop.add_reader(self._socket.fileno(), self._readable)

    @property
    def isolation(self) -> str:
        """``root``, ``rootless`` or ``plain``."""
        return str(self.hello["isolation"])

    async def request(
        self, operation: str, *, attach: list[int] | None = None, **arguments: Any
    ) -> wire.Message:
        """Send one request and wait for its answer; raises ShimError. ``attach`` stays ours."""
        if self._closed:
            raise ShimError("the node's shim process is gone")
        number = next(self._numbers)
        future: asyncio.Future[wire.Message] = self._loop.create_future()
        self._waiting[number] = future
        message = {"id": number, "op": operation, **arguments}
        if attach:
            message["descriptors"] = len(attach)
        try:
            self._send(message, attach)
            # Not wait_for(), which swallows a cancellation that comes with the answer.
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = await future
        finally:
            self._waiting.pop(number, None)
        if "error" in answer:
            raise ShimError(f"the node cannot {operation}: {answer['error']}")
        return answer

    def close(self) -> None:
        """Leave the shim alone; whether it goes on is decided by how it was started."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        for future in self._waiting.values():
            if not future.done():
                future.set_result({"error": "its shim process is gone"})
        for session in self.sessions.values():
            if not session.done():
                session.set_result(137)
        self.events.put_nowait(None)

    def _send(self, message: wire.Message, attach: list[int] | None) -> None:
        data = wire.encode(message)
        try:
            if attach and not self._outgoing:
                data = data[wire.send_descriptors(self._socket, data, attach) :]
            elif not self._outgoing:
                data = data[self._socket.send(data) :]
        except BlockingIOError:
            if attach:
                raise ShimError("the node's shim process is too busy") from None
        except OSError:
            self.close()
            return
        self._outgoing += data
        if self._outgoing:
            self._loop.add_writer(self._socket.fileno(), self._writable)

    def _writable(self) -> None:
        try:
            del self._outgoing[: self._socket.send(self._outgoing)]
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not self._outgoing:
            self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        messages = self._decoder.receive(self._socket)
        if messages is None:
            self.close()
            return
        for message in messages:
            self._dispatch(message)

    def _dispatch(self, message: wire.Message) -> None:
        if count := message.get("descriptors", 0):
            message["descriptors"] = self._decoder.take_descriptors(count)
        if message.get("event") == "exec":
            ended = self.sessions.pop(message["session"], None)
            if ended is not None and not ended.done():
                ended.set_result(message["code"])
            return
        if "event" in message:
            self.events.put_nowait(message)
            return
        future = self._waiting.get(message["id"])
        if future is not None and not future.done():
            future.set_result(message)
        else:  # given up meanwhile
            for descriptor in message.get("descriptors") or ():
                os.close(descriptor)
