"""The agent's side of the shim's socket: requests with answers, and a stream of events."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import weakref
from collections.abc import Sequence
from typing import NamedTuple

from trainyard.embedded.node.container_runtime import RuntimeRefused
from trainyard.embedded.node.pod_runtime_process import PodRuntimeFailed, PodRuntimeHandle
from trainyard.embedded.node.runtime_folder import RuntimeFolder
from trainyard.podruntime import protocol, wire
from trainyard.podruntime.protocol import Attach

_ANSWER_SECONDS = 30.0
_GONE = "the node's shim process is gone"
_KILLED_CODE = 137
_log = logging.getLogger(__name__)


class _Reply(NamedTuple):
    answer: protocol.Answer
    descriptors: Sequence[int] = ()


class PodRuntimeClient:
    """Implements ``ContainerRuntime``. Must be made and used on the event loop's thread."""

    def __init__(self, handle: PodRuntimeHandle) -> None:
        self.hello = handle.ready()
        if self.hello.version != protocol.VERSION:
            theirs = f"trainyard {self.hello.build or 'of another version'}"
            raise PodRuntimeFailed(
                f"{theirs} runs pods here in a way that this one cannot take over (wire version "
                f"{self.hello.version}, here {protocol.VERSION}); go on with that one until they "
                "have ended, or end them with: trainyard down"
            )
        there = os.path.join(handle.state_dir, wire.MEMORY)
        self.runtime_folder = RuntimeFolder(there, there)
        if handle.memory >= 0:
            self.runtime_folder = RuntimeFolder(f"/proc/self/fd/{handle.memory}", there)
            weakref.finalize(self, os.close, handle.memory)  # whoever uses it holds this object
        self.events: asyncio.Queue[protocol.ContainerState | None] = asyncio.Queue()
        self._sessions: dict[str, asyncio.Future[int]] = {}
        self._socket = handle.connection
        self._socket.setblocking(False)
        self._decoder = handle.decoder
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[_Reply]] = {}
        self._outgoing = wire.SendQueue()
        self._loop = asyncio.get_running_loop()
        self._closed = False
        for frame in handle.early:
            self._dispatch(frame)
        self._loop.add_reader(self._socket.fileno(), self._readable)

    async def request(
        self, request: protocol.Request, attach: Sequence[int] = ()
    ) -> protocol.Answer:
        return (await self._exchange(request, attach)).answer

    async def attach(self, wanted: Attach, output: int) -> int:
        reply = await self._exchange(wanted, [output])
        return reply.descriptors[0] if reply.descriptors else -1

    async def open_socket(self, pod: str) -> socket.socket:
        reply = await self._exchange(protocol.OpenSocket(pod), ())
        return socket.socket(fileno=reply.descriptors[0])

    async def open_listener(self, port: int) -> socket.socket:
        reply = await self._exchange(protocol.OpenListener(port), ())
        return socket.socket(fileno=reply.descriptors[0])

    def session(self, name: str) -> asyncio.Future[int]:
        return self._sessions.setdefault(name, self._loop.create_future())

    def forget_session(self, name: str) -> None:
        self._sessions.pop(name, None)

    async def _exchange(self, request: protocol.Request, attach: Sequence[int]) -> _Reply:
        if self._closed:
            raise RuntimeRefused(_GONE)
        number = next(self._numbers)
        future: asyncio.Future[_Reply] = self._loop.create_future()
        self._waiting[number] = future
        try:
            self._send(protocol.request(number, request, len(attach)), attach)
            # Not wait_for(), which swallows a cancellation that comes with the answer.
            async with asyncio.timeout(_ANSWER_SECONDS):
                reply = await future
        finally:
            self._waiting.pop(number, None)
        if reply.answer.error:
            name = protocol.name_of(request)
            raise RuntimeRefused(f"the node cannot {name}: {reply.answer.error}")
        return reply

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._outgoing.close()
        for future in self._waiting.values():
            if not future.done():
                future.set_result(_Reply(protocol.Answer(error="its shim process is gone")))
        for session in self._sessions.values():
            if not session.done():
                session.set_result(_KILLED_CODE)
        self.events.put_nowait(None)

    def _send(self, message: protocol.Raw, attach: Sequence[int]) -> None:
        data = wire.encode(message)
        if len(data) > wire.MAX_FRAME:
            raise RuntimeRefused(f"{len(data) >> 20} MiB of environment and volumes are too much")
        # Copies: what is asked may be given up before it is sent.
        self._outgoing.add(data, _copies(attach))
        self._flush()

    def _flush(self) -> None:
        try:
            is_left = self._outgoing.flush(self._socket)
        except OSError:
            self.close()
            return
        if is_left:
            self._loop.add_writer(self._socket.fileno(), self._flush)
        else:
            self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        try:
            frames = self._decoder.receive(self._socket)
        except wire.FrameError as error:
            _log.error("the shim's connection is broken: %s", error)
            frames = None
        if frames is None:
            self.close()
            return
        for frame in frames:
            try:
                self._dispatch(frame)
            except protocol.ProtocolError as error:
                _log.error("a message of the shim cannot be read: %s", error)

    def _dispatch(self, frame: bytes) -> None:
        raw = wire.parse(frame)
        if "event" not in raw:
            answer = protocol.from_raw(protocol.Answer, raw)
            attached = self._decoder.take_descriptors(answer.descriptors)
            self._answered(protocol.number_of(raw), _Reply(answer, attached))
            return
        event = protocol.read_event(raw)
        if isinstance(event, protocol.SessionEnded):
            ended = self._sessions.pop(event.session, None)
            if ended is not None and not ended.done():
                ended.set_result(event.code)
        elif isinstance(event, protocol.ContainerState):
            self.events.put_nowait(event)

    def _answered(self, number: int, reply: _Reply) -> None:
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(reply)
        else:  # given up meanwhile
            for descriptor in reply.descriptors:
                os.close(descriptor)


def _copies(descriptors: Sequence[int]) -> list[int]:
    found: list[int] = []
    try:
        found.extend(map(os.dup, descriptors))
    except OSError as error:
        for each in found:
            os.close(each)
        raise RuntimeRefused(f"no more descriptors are to be had: {error.strerror}") from None
    return found
