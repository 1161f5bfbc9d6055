"""Who may come in: the connections of one listener, counted, and the memory that they hold.

Whoever has not shown yet who it is counts apart: among those the oldest goes when there are too
many, so that no number of them keeps out who may come in. Others are refused beyond their number.
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
_CROWD, _LOAD_BYTES = 16, 8 << 20
"""So many connections less, or so much less memory held by them, are worth giving memory back."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the connections of one listener may take."""

    connections: int
    strangers: int
    """Of these, connections that have not shown whose they are."""
    of_one: int
    """Connections of one person."""
    held_bytes: int
    """Of bodies that are being received, and of large answers that are being sent, in all."""
    head_seconds: float = 15.0
    """From the first byte of a request, or from connecting, to the end of its head."""
    body_seconds: float = 60.0
    idle_seconds: float = math.inf
    """Between two requests."""


class Guest(Protocol):
    """A connection, from when it is accepted on."""

    def expire(self, now: float) -> None:
        """End it where it takes too long."""


class Place:
    """What one connection takes of its listener; leave it once, however often it is called."""

    __slots__ = ("_bytes", "_end", "_name", "door", "tenant")

    def __init__(self, door: Door, end: socket.socket | None) -> None:
        self.door = door
        self._end = end
        self._name: str | None = None
        self._bytes = 0
        self.tenant: Guest | None = None
        """None while the connection is being secured."""

    def claim(self, identity: Identity) -> None:
        """It is known whose the connection is; raises ApiError (429) when these have too many."""
        if self._name == identity.name:
            return
        self.door.strangers.pop(self, None)
        self._forget_person()
        of_one = self.door.limits.of_one
        if self.door.people[identity.name] >= of_one:
            raise too_many(f"{identity.name} has {of_one} connections already")
        self._name = identity.name
        self.door.people[identity.name] += 1

    def hold(self, size: int, *, in_any_case: bool = False) -> None:
        """Memory is taken; raises ApiError (429) when all together take too much."""
        door = self.door
        if self not in door.places:
            return  # its client is gone: nothing is kept for it
        is_much = door.held_bytes and door.held_bytes + size > door.limits.held_bytes
        if is_much and not in_any_case:
            raise too_many("the requests under way hold too much memory")
        door.held_bytes += size
        self._bytes += size
        door.most_held = max(door.most_held, door.held_bytes)

    def release(self, size: int) -> None:
        """Memory is free again."""
        if self not in self.door.places:
            return
        self.door.held_bytes -= size
        self._bytes -= size

    def leave(self) -> None:
        """The connection is over."""
        self.release(self._bytes)
        self._forget_person()
        self.door.strangers.pop(self, None)
        self.door.places.discard(self)
        self.tenant = self._end = None

    def show_out(self) -> None:
        """Make room for another; the transport sees the end of the connection and closes."""
        end = self._end
        self.leave()
        if end is not None:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _forget_person(self) -> None:
        name, self._name = self._name, None
        if name is not None:
            self.door.people[name] -= 1
            if not self.door.people[name]:
                del self.door.people[name]


class Door:
    """What the connections of one listener have in common."""

    def __init__(self, handler: Handler, authenticate: Authenticate, limits: Limits) -> None:
        self.handler = handler
        self.authenticate = authenticate
        self.limits = limits
        self.places: set[Place] = set()
        self.strangers: dict[Place, None] = {}
        """In the order in which they came."""
        self.people: Counter[str] = Counter()
        self.held_bytes = 0
        self.most_held = self._most_places = 0
        """Since memory was last given back."""

    def enter(self, end: socket.socket | None = None) -> Place | None:
        """A place for a connection; None when every place is taken by somebody known."""
        limits = self.limits
        is_full = len(self.places) >= limits.connections
        if self.strangers and (is_full or len(self.strangers) >= limits.strangers):
            next(iter(self.strangers)).show_out()
        elif is_full:
            return None
        place = Place(self, end)
        self.places.add(place)
        self._most_places = max(self._most_places, len(self.places))
        self.strangers[place] = None
        return place

    def sweep(self, now: float) -> None:
        """End the connections that take too long, and give back what others took."""
        for place in tuple(self.places):
            if place.tenant is not None:
                place.tenant.expire(now)
        present = len(self.places)
        self._most_places = max(self._most_places, present)
        crowd_is_gone = self._most_places >= present + _CROWD
        load_is_gone = self.most_held >= self.held_bytes + _LOAD_BYTES
        if crowd_is_gone or load_is_gone:
            self._most_places, self.most_held = present, self.held_bytes
            malloc_trim.trim_malloc()


def too_many(why: str) -> ApiError:
    """Try again later."""
    return ApiError(
        f"too many requests: {why}; try again later",
        code=429,
        reason="TooManyRequests",
        retry_after=RETRY_SECONDS,
    )
