"""A listening socket whose connections are counted before anything is spent on them."""

from __future__ import annotations

import asyncio
import socket
import ssl

from trainyard.embedded.apiserver.http.connection_limits import Door, Place
from trainyard.embedded.apiserver.http.http_connection import Connection

_HANDSHAKE_SECONDS = 10.0
_SHUTDOWN_SECONDS = 2.0
_SWEEP_SECONDS = 1.0
_PAUSE_SECONDS = 0.5
"""Before accepting again, when the process has no file descriptor left."""
_AT_ONCE = 64
"""Connections that are accepted before anybody else has a turn."""


class Listener:
    """Accepts connections from `end`, a listening socket that it takes over."""

    def __init__(self, end: socket.socket, door: Door, context: ssl.SSLContext | None) -> None:
        self.door = door
        self._end = end
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._securing: set[asyncio.Task[None]] = set()
        end.setblocking(False)
        end.listen(socket.SOMAXCONN)
        self._loop.add_reader(end, self._accept)
        self._sweeping = self._loop.call_later(_SWEEP_SECONDS, self._sweep)

    def close(self) -> list[asyncio.Task[None]]:
        """Stop accepting and end every connection; returns what is still being cancelled."""
        self._sweeping.cancel()
        self._loop.remove_reader(self._end)
        self._end.close()
        left = list(self._securing)
        for task in left:
            task.cancel()
        for place in tuple(self.door.places):
            if isinstance(place.tenant, Connection):
                answering = place.tenant.abort()
                left += [answering] if answering is not None else []
        return left

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                end, _address = self._end.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # mostly no file descriptor left; those who are in go on
                self._loop.remove_reader(self._end)
                self._loop.call_later(_PAUSE_SECONDS, self._accept_again)
                return
            place = self.door.enter(end)
            if place is None:
                end.close()
                continue
            end.setblocking(False)
            task = self._loop.create_task(self._secure(end, place))
            self._securing.add(task)
            task.add_done_callback(self._securing.discard)

    def _accept_again(self) -> None:
        if self._end.fileno() >= 0:
            self._loop.add_reader(self._end, self._accept)

    async def _secure(self, end: socket.socket, place: Place) -> None:
        times = (_HANDSHAKE_SECONDS, _SHUTDOWN_SECONDS) if self._context else (None, None)
        try:
            await self._loop.connect_accepted_socket(
                lambda: Connection(place),
                end,
                ssl=self._context,
                ssl_handshake_timeout=times[0],
                ssl_shutdown_timeout=times[1],
            )
        except OSError:  # no TLS, or too slow
            place.leave()
        except asyncio.CancelledError:
            place.show_out()
            raise

    def _sweep(self) -> None:
        self.door.sweep(self._loop.time())
        self._sweeping = self._loop.call_later(_SWEEP_SECONDS, self._sweep)
