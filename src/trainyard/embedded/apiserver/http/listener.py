"""A listening socket that applies connection limits before it spends anything on a connection."""

from __future__ import annotations

import asyncio
import socket
import ssl

from trainyard.embedded.apiserver.http.connection_limits import ConnectionLimiter, ConnectionSlot
from trainyard.embedded.apiserver.http.http_connection import HttpConnection

_HANDSHAKE_SECONDS = 10.0
_SHUTDOWN_SECONDS = 2.0
_EXPIRY_CHECK_SECONDS = 1.0
_PAUSE_SECONDS = 0.5
"""Before accepting again, when the process has no file descriptor left."""
_AT_ONCE = 64
"""Connections that are accepted before anybody else has a turn."""


class Listener:
    """Accepts connections from `end`, a listening socket that it takes over."""

    def __init__(
        self, end: socket.socket, limiter: ConnectionLimiter, context: ssl.SSLContext | None
    ) -> None:
        self.limiter = limiter
        self._end = end
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._securing: set[asyncio.Task[None]] = set()
        end.setblocking(False)
        end.listen(socket.SOMAXCONN)
        self._loop.add_reader(end, self._accept)
        self._expiry_timer = self._loop.call_later(_EXPIRY_CHECK_SECONDS, self._close_expired)

    def close(self) -> list[asyncio.Task[None]]:
        """Stop accepting and end every connection; returns what is still being cancelled."""
        self._expiry_timer.cancel()
        self._loop.remove_reader(self._end)
        self._end.close()
        left = list(self._securing)
        for task in left:
            task.cancel()
        for slot in tuple(self.limiter.slots):
            if isinstance(slot.connection, HttpConnection):
                answering = slot.connection.abort()
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
            slot = self.limiter.acquire(end)
            if slot is None:
                end.close()
                continue
            end.setblocking(False)
            task = self._loop.create_task(self._secure(end, slot))
            self._securing.add(task)
            task.add_done_callback(self._securing.discard)

    def _accept_again(self) -> None:
        if self._end.fileno() >= 0:
            self._loop.add_reader(self._end, self._accept)

    async def _secure(self, end: socket.socket, slot: ConnectionSlot) -> None:
        times = (_HANDSHAKE_SECONDS, _SHUTDOWN_SECONDS) if self._context else (None, None)
        try:
            await self._loop.connect_accepted_socket(
                lambda: HttpConnection(slot),
                end,
                ssl=self._context,
                ssl_handshake_timeout=times[0],
                ssl_shutdown_timeout=times[1],
            )
        except OSError:  # no TLS, or too slow
            slot.free()
        except asyncio.CancelledError:
            slot.evict()
            raise

    def _close_expired(self) -> None:
        self.limiter.close_expired(self._loop.time())
        self._expiry_timer = self._loop.call_later(_EXPIRY_CHECK_SECONDS, self._close_expired)
