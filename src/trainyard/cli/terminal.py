"""The user's terminal, or pipes, connected to a command that runs elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING

if sys.platform != "win32":
    import termios
    import tty

if TYPE_CHECKING:
    from trainyard.api.job_queries import ExecStream

_CHUNK = 1 << 16
_STDOUT, _STDERR = 1, 2


async def attach(remote: ExecStream, *, stdin: bool, is_terminal: bool) -> int:
    """Connect this process's standard streams to the command; returns its exit code."""
    with _raw_mode() if is_terminal else contextlib.nullcontext():
        async with asyncio.TaskGroup() as group:
            helpers = []
            if stdin:
                helpers.append(group.create_task(_feed(remote)))
            if is_terminal:
                helpers.append(group.create_task(_follow_size(remote)))
            try:
                async with contextlib.aclosing(remote.output()) as chunks:
                    async for stream, data in chunks:
                        _write(_STDERR if stream == _STDERR else _STDOUT, data)
            finally:
                for helper in helpers:
                    helper.cancel()
    return remote.exit_code or 0


def _write(fd: int, data: bytes) -> None:
    (sys.stdout if fd == _STDOUT else sys.stderr).flush()
    while data:
        data = data[os.write(fd, data) :]


@contextlib.contextmanager
def _raw_mode() -> Iterator[None]:
    """Every key goes to the remote terminal as it is, Ctrl-C too."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd, termios.TCSADRAIN)  # what was typed ahead is kept
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


async def _feed(remote: ExecStream) -> None:
    async with contextlib.aclosing(_read_stdin()) as chunks:
        async for chunk in chunks:
            await remote.write(chunk)
    await remote.close_stdin()


async def _read_stdin() -> AsyncGenerator[bytes, None]:
    """What arrives on standard input; files, which cannot be waited for, are read as they are."""
    fd = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        # Once per readiness, and right here: a read too many would block everything.
        loop.remove_reader(fd)
        try:
            arrived.put_nowait(os.read(fd, _CHUNK))
        except OSError:  # the terminal is gone
            arrived.put_nowait(b"")

    try:
        while True:
            loop.add_reader(fd, read)
            chunk = await arrived.get()
            if not chunk:
                return
            yield chunk
    except PermissionError:  # epoll takes no regular files
        while chunk := await asyncio.to_thread(os.read, fd, _CHUNK):
            yield chunk
    finally:
        loop.remove_reader(fd)


async def _follow_size(remote: ExecStream) -> None:
    """The size now, and whenever the window changes."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    changed.set()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    try:
        while True:
            await changed.wait()
            changed.clear()
            size = os.get_terminal_size(sys.stdout.fileno())
            await remote.resize(size.columns, size.lines)
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
