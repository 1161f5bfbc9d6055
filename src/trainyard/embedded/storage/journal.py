"""Who hears of a change: the recent past for watchers who come back, and live subscriptions.

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
    """An object as JSON that is to be kept: orjson's own answer holds on to the buffer that it was
    written to, which is many times as large (12 KB for 2.6, measured)."""
    return bytes(memoryview(orjson.dumps(obj)))


class Entry:
    """One version of an object: its JSON, and for as long as it is often read the object itself.

    A tree of dictionaries takes seven times the memory of its JSON; an object that is at rest is
    read from the JSON again when somebody asks for it (20 µs for a pod).
    """

    __slots__ = ("_like", "_object", "_raw", "revision")

    def __init__(self, obj: Object, raw: bytes, revision: int) -> None:
        self._object: Object | None = obj
        self._raw = raw
        self._like: bytes | None = None
        """What it is packed by, if it is."""
        self.revision = revision

    @property
    def raw(self) -> bytes:
        """The object as JSON."""
        if self._like is None:
            return self._raw
        return zlib.decompressobj(zdict=self._like).decompress(self._raw)

    @property
    def object(self) -> Object:
        """The object. It is shared: never mutate it."""
        found = self._object
        if found is None:
            found = self._object = orjson.loads(self.raw)
            _READ_LATELY.append(self)
            if len(_READ_LATELY) > _KEPT_READ:
                _READ_LATELY.popleft().rest()
        return found

    def json_of(self, obj: Object) -> bytes | None:
        """The JSON, if this is the version that `obj` itself is."""
        return self.raw if self._object is obj else None

    def rest(self) -> None:
        """Keep the JSON only, packed if it is long."""
        self._object = None
        if len(self._raw) > _PACKED_FROM and self._like is None:
            self._raw, self._like = _packer.packed(self._raw)


class _Packer:
    """Packs JSON by what another of its kind begins with: objects that carry the same programs, 40
    KB of them, take 6 KB instead of 29.

    What has little in common with that is packed alone, and so holds nothing else in memory; two
    of these in a row, and it is by the last one that the next are packed.
    """

    def __init__(self) -> None:
        self._patterns: dict[bytes, bytes] = {}
        self._odd: set[bytes] = set()

    def packed(self, raw: bytes) -> tuple[bytes, bytes]:
        """As zlib packs it with a dictionary, and the dictionary."""
        kind = raw[: max(0, raw.find(b'"metadata"', 0, _MOST_BYTES_OF_KIND))]
        like = self._patterns.get(kind, b"")
        found = _deflated(raw, like)
        if 2 * len(found) <= len(raw):
            self._odd.discard(kind)
            return found, like
        if like and kind not in self._odd:
            self._odd.add(kind)
        else:
            self._odd.discard(kind)
            self._patterns[kind] = raw[:_WINDOW]
        return (_deflated(raw, b"") if like else found), b""


def _deflated(raw: bytes, like: bytes) -> bytes:
    deflate = zlib.compressobj(1, zdict=like)
    return deflate.compress(raw) + deflate.flush()


_PACKED_FROM = 1 << 14
_WINDOW = 31 << 10
"""zlib looks back a little less than 32 KB."""
_MOST_BYTES_OF_KIND = 200
"""Of API version and kind; where these come later, it is of a kind with all others like it."""
_packer = _Packer()
_KEPT_READ = 256
_READ_LATELY: deque[Entry] = deque()
"""Those at rest that were read last: what asks for an object once often does so again."""


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
        """End it, once so many bytes of changes wait to be read: whoever reads is too slow."""
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
        """Queue a change (the journal's business)."""
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
    """The recent changes of every resource, and those who listen."""

    def __init__(self, start_revision: int, limit_bytes: int) -> None:
        """Changes up to `start_revision` are unknown; all resources together keep `limit_bytes`.

        What has no room is taken from the resource that has most, so that nobody's Events or pods
        cost the watchers of another resource their past.
        """
        self._limit = limit_bytes
        self._size = 0
        self._start = start_revision
        self._logs: dict[str, _Log] = {}
        self._listeners: dict[str, dict[Subscription, None]] = {}

    def record(self, event: Event, entry: Entry, old: Entry | None) -> None:
        """Remember a committed change, from the version `old` to `entry`, and pass it on."""
        log = self._logs.get(event.resource)
        if log is None:
            log = self._logs[event.resource] = _Log(self._start)
        before = None if old is None else old.raw
        self._size += log.append(_Past(event.type, entry.raw, before, event.revision))
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


class _Past(NamedTuple):
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


class _Log:
    __slots__ = ("changes", "horizon", "size")

    def __init__(self, horizon: int) -> None:
        self.changes: deque[_Past] = deque()
        self.horizon = horizon
        self.size = 0

    def append(self, past: _Past) -> int:
        """Take a change up; what it takes in bytes."""
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
