"""Recent changes for resumed watches, and live subscriptions.

The journal holds the last changes, bounded by bytes, so that a watch can be resumed from a
resourceVersion; older ones are answered 410 Gone and the client lists again.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections import deque
from collections.abc import AsyncIterator, Iterable
from itertools import takewhile
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from trainyard.embedded.api_errors import expired

Object = dict[str, Any]


def encoded(obj: Object) -> bytes:
    """An object as JSON for keeping. The bytes of `orjson.dumps` keep a larger buffer alive (12 KB
    for 2.6, measured), so they are copied."""
    return bytes(memoryview(orjson.dumps(obj)))


class Entry:
    """One version of an object: its JSON, and the parsed object while it is in use.

    A parsed object takes seven times the memory of its JSON. Of a finished object only the JSON
    is kept, and parsed again on request (20 µs for a pod).
    """

    __slots__ = ("_compressed", "_object", "_raw", "revision")

    def __init__(self, obj: Object, raw: bytes, revision: int) -> None:
        self._object: Object | None = obj
        self._raw = raw
        self._compressed = False
        self.revision = revision

    @property
    def raw(self) -> bytes:
        """The object as JSON."""
        return zlib.decompress(self._raw) if self._compressed else self._raw

    @property
    def object(self) -> Object:
        """The object. It is shared: never mutate it."""
        found = self._object
        if found is None:
            found = self._object = orjson.loads(self.raw)
            _RECENTLY_PARSED.append(self)
            if len(_RECENTLY_PARSED) > _MAX_PARSED:
                _RECENTLY_PARSED.popleft().release_object()
        return found

    def json_of(self, obj: Object) -> bytes | None:
        """The JSON, if this is the version that `obj` itself is."""
        return self.raw if self._object is obj else None

    def release_object(self) -> None:
        """Keep the JSON only, compressed if it is long."""
        self._object = None
        if len(self._raw) > _COMPRESS_FROM_BYTES and not self._compressed:
            self._raw, self._compressed = zlib.compress(self._raw, 1), True


_COMPRESS_FROM_BYTES = 16 << 10
"""ConfigMaps with programs, mostly: 100 KB of a DeepSpeedJob take 35."""
_MAX_PARSED = 256
_RECENTLY_PARSED: deque[Entry] = deque()
"""Entries without an object that were read last: who reads an object often reads it again."""


class Event(NamedTuple):
    """One change. `old` is the version before it; `object` of a DELETED event is the last one."""

    type: str
    """ADDED, MODIFIED or DELETED."""
    resource: str
    object: Object
    old: Object | None
    raw: bytes
    revision: int


class Subscription:
    """Changes in commit order, without loss; iterate with `async for`, end with `close()`."""

    def __init__(self, backlog: Iterable[Event] = ()) -> None:
        self._events: deque[Event] = deque(backlog)
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False
        self._most = self._left = math.inf

    def limit(self, size: int) -> None:
        """End the subscription once so many bytes wait to be read: its reader is too slow."""
        self._most = self._left = size

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            await self._wait()
        return self._events.popleft()

    async def batch(self) -> list[Event]:
        """Every change that is there now, or the next ones; empty once closed."""
        while not self._events and not self._closed:
            await self._wait()
        return self.pending()

    def pending(self) -> list[Event]:
        """Every change that is there now, without waiting."""
        events = list(self._events)
        self._events.clear()
        self._left = self._most
        return events

    def close(self) -> None:
        """End the iteration once what is queued has been read."""
        self._closed = True
        self._wake()

    def publish(self, event: Event) -> None:
        """Queue a change; called by the journal."""
        self._left -= len(event.raw)
        if self._left < 0:
            self._events.clear()
            self.close()
            return
        self._events.append(event)
        self._wake()

    async def _wait(self) -> None:
        # A future for each who waits: shielding one that all have in common costs them more.
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class Journal:
    """The recent changes of every resource, and its subscriptions."""

    def __init__(self, start_revision: int, limit_bytes: int) -> None:
        """Changes up to `start_revision` are unknown; all resources together keep `limit_bytes`.

        Beyond that, changes of the resource with the most are dropped first, so that many Events
        or pods do not end the history of other resources.
        """
        self._limit = limit_bytes
        self._size = 0
        self._start = start_revision
        self._logs: dict[str, _ResourceLog] = {}
        self._listeners: dict[str, dict[Subscription, None]] = {}

    def record(self, event: Event, entry: Entry, old: Entry | None) -> None:
        """Remember a committed change, from the version `old` to `entry`, and pass it on."""
        log = self._logs.get(event.resource)
        if log is None:
            log = self._logs[event.resource] = _ResourceLog(self._start)
        before = None if old is None else old.raw
        self._size += log.append(_PastChange(event.type, entry.raw, before, event.revision))
        while self._size > self._limit:
            freed = max(self._logs.values(), key=_size_of).forget_oldest(self._limit // 64)
            if not freed:
                break
            self._size -= freed
        for listener in tuple(self._listeners.get(event.resource, ())):
            listener.publish(event)

    def since(self, resource: str, revision: int) -> list[Event]:
        """The changes after `revision`; raises Gone when they are not all known any more."""
        log = self._logs.get(resource)
        oldest = log.horizon if log is not None else self._start
        if revision < oldest:
            raise expired(revision, oldest)
        if log is None:
            return []
        recent = takewhile(lambda past: past.revision > revision, reversed(log.changes))
        return [past.event(resource) for past in list(recent)[::-1]]

    def listen(self, resources: Iterable[str], listener: Subscription) -> None:
        """Pass changes of `resources` on to `listener` from now on."""
        for resource in resources:
            self._listeners.setdefault(resource, {})[listener] = None

    def forget(self, listener: Subscription) -> None:
        """Stop passing changes on; closes the listener."""
        for listeners in self._listeners.values():
            listeners.pop(listener, None)
        listener.close()

    def close(self) -> None:
        """End every subscription."""
        for listener in {each for group in self._listeners.values() for each in group}:
            self.forget(listener)


_PAST_BYTES = 240
"""Of a change beside its JSON: the tuple, its number, its place, and what Python adds to bytes."""


class _PastChange(NamedTuple):
    """A change as the journal keeps it: JSON only, which successive changes share."""

    type: str
    raw: bytes
    old: bytes | None
    revision: int

    @property
    def size(self) -> int:
        """The memory that it takes at most: most changes share `old` with the one before."""
        return _PAST_BYTES + len(self.raw) + (0 if self.old is None else len(self.old))

    def event(self, resource: str) -> Event:
        old = None if self.old is None else orjson.loads(self.old)
        return Event(self.type, resource, orjson.loads(self.raw), old, self.raw, self.revision)


class _ResourceLog:
    __slots__ = ("changes", "horizon", "size")

    def __init__(self, horizon: int) -> None:
        self.changes: deque[_PastChange] = deque()
        self.horizon = horizon
        self.size = 0

    def append(self, past: _PastChange) -> int:
        """Add a change; returns its size in bytes."""
        self.changes.append(past)
        size = past.size
        self.size += size
        return size

    def forget_oldest(self, enough: int) -> int:
        """Free so many bytes at least, which is cheaper than one change at each write.

        What was freed; 0 where only the newest change is left, which stays.
        """
        freed = 0
        while freed < enough and len(self.changes) > 1:
            dropped = self.changes.popleft()
            freed += dropped.size
            self.horizon = dropped.revision
        self.size -= freed
        return freed


_size_of = attrgetter("size")
