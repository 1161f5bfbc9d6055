"""Streams of ``exec`` and ``attach``: the agent's end of a command or container."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from trainyard.embedded.kubelet_api import OutputChunk
from trainyard.embedded.node.container_runtime import ContainerRuntime, RuntimeRefused
from trainyard.podruntime import protocol, wire
from trainyard.podruntime.protocol import Attach

_CHUNK = 1 << 16
_TERMINAL_SECONDS = 10.0
# Chunks that nobody has taken yet: with so many no more is read, and the command has to wait.
_MAX_QUEUED_CHUNKS = 16
# Of the output of a command whose output is not streamed; its end tells what went wrong.
_TAIL_BYTES = 1 << 14


class StreamSession:
    """Descriptors that a program reads and writes, as an ``ExecSession`` has them. Single use."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stdin = -1
        self._terminal = -1
        """The controlling end of a terminal; the same descriptor as stdin and the output."""
        self._outputs: dict[int, int] = {}
        self._queue: asyncio.Queue[OutputChunk | None] = asyncio.Queue()

    def _resume_reading(self) -> None:
        for fd in self._outputs:
            self._loop.add_reader(fd, self._on_readable, fd)

    def _on_readable(self, fd: int) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # EIO: the terminal's other end is closed
            data = b""
        if data:
            self._queue.put_nowait(OutputChunk(self._outputs[fd], data))
            if self._queue.qsize() >= _MAX_QUEUED_CHUNKS:
                for each in self._outputs:
                    self._loop.remove_reader(each)
            return
        self._close_output(fd)

    def _close_output(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        del self._outputs[fd]
        if fd != self._stdin:
            os.close(fd)
        if not self._outputs:
            self._queue.put_nowait(None)

    async def output(self) -> AsyncIterator[OutputChunk]:
        while (chunk := await self._queue.get()) is not None:
            if self._queue.qsize() == _MAX_QUEUED_CHUNKS - 1:
                self._resume_reading()
            yield chunk

    async def write(self, data: bytes) -> None:
        while data and self._stdin >= 0:
            try:
                data = data[os.write(self._stdin, data) :]
            except BlockingIOError:
                await _wait_until_ready(
                    self._loop.add_writer, self._loop.remove_writer, self._stdin
                )
            except OSError:
                return

    async def close_stdin(self) -> None:
        if self._stdin >= 0 and self._stdin == self._terminal:
            await self.write(b"\x04")  # end of file, as typed
        elif self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    async def resize(self, columns: int, rows: int) -> None:
        if self._terminal >= 0:
            import termios

            size = struct.pack("=HHHH", rows, columns, 0, 0)
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)

    async def close(self) -> None:
        """Close what is open."""
        for fd in list(self._outputs):
            self._close_output(fd)
        for fd in {self._stdin, self._terminal} - {-1}:
            os.close(fd)
        self._stdin = self._terminal = -1


class CommandSession(StreamSession):
    """One command; implements ``trainyard.embedded.kubelet_api.ExecSession``."""

    def __init__(self, runtime: ContainerRuntime, wanted: protocol.Exec) -> None:
        super().__init__()
        self._runtime = runtime
        self._wanted = wanted
        self._ended = runtime.session(wanted.session)

    @classmethod
    async def start(
        cls, runtime: ContainerRuntime, wanted: protocol.Exec, *, stdin: bool = False
    ) -> CommandSession:
        session = cls(runtime, wanted)
        try:
            if wanted.tty:
                await session._start_terminal()
            else:
                await session._start_pipes(stdin)
        except BaseException:
            runtime.forget_session(wanted.session)
            await session.close()
            raise
        for fd in session._outputs:
            os.set_blocking(fd, False)
        session._resume_reading()
        return session

    async def _start_pipes(self, stdin: bool) -> None:
        if stdin:
            theirs_in, self._stdin = os.pipe2(os.O_CLOEXEC)
        else:
            theirs_in = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        out, theirs_out = os.pipe2(os.O_CLOEXEC)
        error, theirs_error = os.pipe2(os.O_CLOEXEC)
        self._outputs = {out: 1, error: 2}
        theirs = [theirs_in, theirs_out, theirs_error]
        try:
            await self._runtime.request(self._wanted, theirs)
        finally:
            for fd in theirs:
                os.close(fd)
        if stdin:
            os.set_blocking(self._stdin, False)

    async def _start_terminal(self) -> None:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                await self._runtime.request(self._wanted, [theirs.fileno()])
            ours.setblocking(False)
            decoder = wire.Decoder()
            async with asyncio.timeout(_TERMINAL_SECONDS):
                await _wait_until_ready(
                    self._loop.add_reader, self._loop.remove_reader, ours.fileno()
                )
            decoder.receive(ours)
        try:
            (self._stdin,) = decoder.take_descriptors(1)
        except protocol.ProtocolError:
            text = f"cannot open a terminal in container {self._wanted.name}"
            raise RuntimeRefused(text) from None
        self._terminal = self._stdin
        self._outputs = {self._stdin: 1}

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def close(self) -> None:
        if not self._ended.done():
            with contextlib.suppress(RuntimeRefused):
                await self._runtime.request(protocol.EndSession(self._wanted.session))
        await super().close()


class AttachSession(StreamSession):
    """The streams of a container itself; they end with its output, and it goes on without us."""

    @classmethod
    async def start(
        cls, runtime: ContainerRuntime, pod: str, container: Mapping[str, Any], *, stdin: bool
    ) -> AttachSession:
        """``container``: its spec."""
        made = cls()
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        made._outputs = {ours: 1}
        stdin = stdin and bool(container.get("stdin"))
        try:
            end = await runtime.attach(Attach(pod, container["name"], stdin), theirs)
        except BaseException:
            await made.close()
            raise
        finally:
            os.close(theirs)
        if end >= 0:
            os.set_blocking(end, False)
            made._stdin = end if stdin else -1
            made._terminal = end if container.get("tty") else -1
            if not stdin and made._terminal < 0:
                os.close(end)
        made._ends_input = bool(container.get("stdinOnce"))
        os.set_blocking(ours, False)
        made._resume_reading()
        return made

    def __init__(self) -> None:
        super().__init__()
        self._ends_input = False

    async def close_stdin(self) -> None:
        """End the container's input; if it stays open for others, only leave, like containerd."""
        if self._terminal < 0 and self._ends_input:
            await super().close_stdin()
        else:
            self._queue.put_nowait(None)

    async def wait(self) -> int:
        """Always 0: the pod's status says how the container ended."""
        return 0


async def _wait_until_ready(
    watch: Callable[..., Any], forget: Callable[[int], Any], fd: int
) -> None:
    """Wait until ``fd`` is ready; ``watch`` and ``forget`` are methods of the event loop."""
    ready = asyncio.Event()
    watch(fd, ready.set)
    try:
        await ready.wait()
    finally:
        forget(fd)


def new_command(
    pod: str, container: str, argv: Sequence[str], *, tty: bool = False
) -> protocol.Exec:
    """A command to start as a CommandSession."""
    return protocol.Exec(pod, container, uuid.uuid4().hex, tuple(argv), tty)


async def run_command(runtime: ContainerRuntime, wanted: protocol.Exec) -> tuple[int, bytes]:
    """Run a command to its end; returns its exit code and the last that it wrote."""
    session = await CommandSession.start(runtime, wanted)
    try:
        tail = b""
        async for chunk in session.output():
            tail = (tail + chunk.data)[-_TAIL_BYTES:]
        return await session.wait(), tail
    finally:
        await session.close()
