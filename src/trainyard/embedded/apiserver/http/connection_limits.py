"""Limits on the connections of one listener, and on the memory that their requests take.

A connection without an authenticated user counts separately. Where there are too many of those,
the oldest is closed, so that no number of them keeps out a user. Authenticated connections are
refused beyond the limit.
"""

from __future__ import annotations

import math
import socket
from collections import Counter
from contextlib import suppress
from typing import Protocol

from trainyard.embedded import malloc_trim
from trainyard.embedded.apiserver.auth.request_identity import Authenticate, Identity
from trainyard.embedded.apiserver.http.http_messages import Handler
from trainyard.kube.errors import ApiError
from trainyard.schema.dataclass import dataclass

RETRY_SECONDS = 1.0
_MANY_CONNECTIONS, _MUCH_BYTES = 16, 8 << 20
"""After so many connections have closed, or so much buffered data was released, free memory is
returned to the system."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one listener."""

    connections: int
    unauthenticated: int
    """Connections without an authenticated user, of these."""
    per_user: int
    """Connections of one user."""
    buffered_bytes: int
    """Request bodies being received and large answers being sent, in all."""
    head_seconds: float = 15.0
    """From the first byte of a request, or from connecting, to the end of its head."""
    body_seconds: float = 60.0
    idle_seconds: float = math.inf
    """Between two requests."""


class LimitedConnection(Protocol):
    """A connection that may be closed because of its limits."""

    def expire(self, now: float) -> None:
        """Close it where it exceeds its time at `now` (the loop's clock)."""


class ConnectionSlot:
    """One connection's share of the limits. `free` may be called more than once."""

    __slots__ = ("_bytes", "_name", "_socket", "connection", "limiter")

    def __init__(self, limiter: ConnectionLimiter, end: socket.socket | None) -> None:
        self.limiter = limiter
        self._socket = end
        self._name: str | None = None
        self._bytes = 0
        self.connection: LimitedConnection | None = None
        """None until the TLS handshake is done."""

    def assign_user(self, identity: Identity) -> None:
        """Count the connection for its user; raises ApiError (429) when the user has too many."""
        if self._name == identity.name:
            return
        self.limiter.unauthenticated.pop(self, None)
        self._forget_user()
        per_user = self.limiter.limits.per_user
        if self.limiter.connections_by_user[identity.name] >= per_user:
            raise too_many_requests(f"{identity.name} has {per_user} connections already")
        self._name = identity.name
        self.limiter.connections_by_user[identity.name] += 1

    def reserve_bytes(self, size: int, *, always: bool = False) -> None:
        """Count `size` buffered bytes; raises ApiError (429) beyond the limit unless `always`."""
        limiter = self.limiter
        if self not in limiter.slots:
            return  # its client is gone: nothing is kept for it
        is_too_much = (
            limiter.buffered_bytes and limiter.buffered_bytes + size > limiter.limits.buffered_bytes
        )
        if is_too_much and not always:
            raise too_many_requests("the requests under way hold too much memory")
        limiter.buffered_bytes += size
        self._bytes += size
        limiter.peak_buffered_bytes = max(limiter.peak_buffered_bytes, limiter.buffered_bytes)

    def release_bytes(self, size: int) -> None:
        """Count `size` bytes as no longer buffered."""
        if self not in self.limiter.slots:
            return
        self.limiter.buffered_bytes -= size
        self._bytes -= size

    def free(self) -> None:
        """The connection has ended."""
        self.release_bytes(self._bytes)
        self._forget_user()
        self.limiter.unauthenticated.pop(self, None)
        self.limiter.slots.discard(self)
        self.connection = self._socket = None

    def evict(self) -> None:
        """Close the connection to make room for another one."""
        end = self._socket
        self.free()
        if end is not None:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _forget_user(self) -> None:
        name, self._name = self._name, None
        if name is not None:
            self.limiter.connections_by_user[name] -= 1
            if not self.limiter.connections_by_user[name]:
                del self.limiter.connections_by_user[name]


class ConnectionLimiter:
    """All connections of one listener."""

    def __init__(
        self, handler: Handler, authenticate: Authenticate, limits: ConnectionLimits
    ) -> None:
        self.handler = handler
        self.authenticate = authenticate
        self.limits = limits
        self.slots: set[ConnectionSlot] = set()
        self.unauthenticated: dict[ConnectionSlot, None] = {}
        """Oldest first."""
        self.connections_by_user: Counter[str] = Counter()
        self.buffered_bytes = 0
        self.peak_buffered_bytes = self._peak_connections = 0
        """Peaks since memory was last returned to the system."""

    def acquire(self, end: socket.socket | None = None) -> ConnectionSlot | None:
        """A slot for a new connection; None when authenticated connections take them all."""
        limits = self.limits
        is_full = len(self.slots) >= limits.connections
        if self.unauthenticated and (
            is_full or len(self.unauthenticated) >= limits.unauthenticated
        ):
            next(iter(self.unauthenticated)).evict()
        elif is_full:
            return None
        slot = ConnectionSlot(self, end)
        self.slots.add(slot)
        self._peak_connections = max(self._peak_connections, len(self.slots))
        self.unauthenticated[slot] = None
        return slot

    def close_expired(self, now: float) -> None:
        """Close connections that exceed their times, and return freed memory to the system."""
        for slot in tuple(self.slots):
            if slot.connection is not None:
                slot.connection.expire(now)
        now_open = len(self.slots)
        self._peak_connections = max(self._peak_connections, now_open)
        many_have_gone = self._peak_connections >= now_open + _MANY_CONNECTIONS
        much_was_released = self.peak_buffered_bytes >= self.buffered_bytes + _MUCH_BYTES
        if many_have_gone or much_was_released:
            self._peak_connections, self.peak_buffered_bytes = now_open, self.buffered_bytes
            malloc_trim.trim_malloc()


def too_many_requests(why: str) -> ApiError:
    """429 with a time to retry after."""
    return ApiError(
        f"too many requests: {why}; try again later",
        code=429,
        reason="TooManyRequests",
        retry_after=RETRY_SECONDS,
    )
