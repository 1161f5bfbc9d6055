"""Commands in running containers: the agent's end of ``exec``."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import termios
import uuid
from collections.abc import AsyncIterator, Sequence

from trainyard.local.node.container_runtime import ContainerRuntime, RuntimeRefused
from trainyard.local.runtime import Output
from trainyard.shim import protocol, wire

_CHUNK = 1 << 16
_TERMINAL_SECONDS = 10.0


class Session:
    """One command; implements ``trainyard.local.runtime.ExecSession``. Single use."""

    def __init__(self, runtime: ContainerRuntime) -> None:
        self._runtime = runtime
        self._name = uuid.uuid4().hex
        self._loop = asyncio.get_running_loop()
        self._ended = runtime.session(self._name)
        self._stdin = -1
        self._terminal = False
        self._outputs: dict[int, int] = {}
        self._queue: asyncio.Queue[Output | None] = asyncio.Queue()

    @classmethod
    async def start(
        cls,
        runtime: ContainerRuntime,
        pod: str,
        container: str,
        command: Sequence[str],
        *,
        stdin: bool = False,
        tty: bool = False,
    ) -> Session:
        session = cls(runtime)
        try:
            if tty:
                await session._start_terminal(pod, container, command)
            else:
                await session._start_pipes(pod, container, command, stdin)
        except BaseException:
            runtime.forget_session(session._name)
            await session.close()
            raise
        for fd in session._outputs:
            os.set_blocking(fd, False)
            session._loop.add_reader(fd, session._readable, fd)
        return session

    async def _start_pipes(
        self, pod: str, container: str, command: Sequence[str], stdin: bool
    ) -> None:
        if stdin:
            theirs_in, self._stdin = os.pipe2(os.O_CLOEXEC)
        else:
            theirs_in = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        out, theirs_out = os.pipe2(os.O_CLOEXEC)
        error, theirs_error = os.pipe2(os.O_CLOEXEC)
        self._outputs = {out: 1, error: 2}
        theirs = [theirs_in, theirs_out, theirs_error]
        try:
            await self._request(pod, container, command, False, theirs)
        finally:
            for fd in theirs:
                os.close(fd)
        if stdin:
            os.set_blocking(self._stdin, False)

    async def _start_terminal(self, pod: str, container: str, command: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                await self._request(pod, container, command, True, [theirs.fileno()])
            ours.setblocking(False)
            decoder = wire.Decoder()
            async with asyncio.timeout(_TERMINAL_SECONDS):
                await _until_readable(self._loop, ours)
            decoder.receive(ours)
        if not decoder.descriptors:
            raise RuntimeRefused(f"cannot open a terminal in container {container}")
        controller = decoder.descriptors[0]
        self._terminal = True
        self._stdin = controller
        self._outputs = {controller: 1}

    async def _request(
        self, pod: str, container: str, command: Sequence[str], tty: bool, attach: list[int]
    ) -> None:
        await self._runtime.request(
            protocol.Exec(pod, container, self._name, tuple(command), tty), attach
        )

    def _readable(self, fd: int) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # EIO: the terminal's other end is closed
            data = b""
        if data:
            self._queue.put_nowait(Output(self._outputs[fd], data))
            return
        self._close_output(fd)

    def _close_output(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        del self._outputs[fd]
        if fd != self._stdin:
            os.close(fd)
        if not self._outputs:
            self._queue.put_nowait(None)

    async def output(self) -> AsyncIterator[Output]:
        while (chunk := await self._queue.get()) is not None:
            yield chunk

    async def write(self, data: bytes) -> None:
        while data and self._stdin >= 0:
            try:
                data = data[os.write(self._stdin, data) :]
            except BlockingIOError:
                await _until_writable(self._loop, self._stdin)
            except OSError:
                return

    async def close_stdin(self) -> None:
        if self._terminal and self._stdin >= 0:
            await self.write(b"\x04")  # end of file, as typed
        elif self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    async def resize(self, columns: int, rows: int) -> None:
        if self._terminal and self._stdin >= 0:
            size = struct.pack("=HHHH", rows, columns, 0, 0)
            fcntl.ioctl(self._stdin, termios.TIOCSWINSZ, size)

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def close(self) -> None:
        if not self._ended.done():
            with contextlib.suppress(RuntimeRefused):
                await self._runtime.request(protocol.EndSession(self._name))
        for fd in list(self._outputs):
            self._close_output(fd)
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1


async def _until_readable(loop: asyncio.AbstractEventLoop, source: socket.socket) -> None:
    ready = asyncio.Event()
    loop.add_reader(source.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(source.fileno())


async def _until_writable(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    ready = asyncio.Event()
    loop.add_writer(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(fd)


async def run_command(
    runtime: ContainerRuntime, pod: str, container: str, command: Sequence[str]
) -> tuple[int, bytes]:
    """Run a command to its end; returns its exit code and what it wrote."""
    session = await Session.start(runtime, pod, container, command)
    try:
        output = b"".join([chunk.data async for chunk in session.output()])
        return await session.wait(), output
    finally:
        await session.close()
