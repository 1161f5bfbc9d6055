"""Watch streams: changes as they are committed, filtered, as objects or as Table rows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import orjson

from trainyard.embedded.api_errors import StatusCause, error_status, expired, invalid
from trainyard.embedded.apiserver.http.http_messages import Request, Stream
from trainyard.embedded.apiserver.requests import request_limits
from trainyard.embedded.apiserver.requests.list_selectors import Predicate
from trainyard.embedded.apiserver.requests.representation import negotiate_representation
from trainyard.embedded.apiserver.requests.request_target import Target
from trainyard.embedded.registry import Registry
from trainyard.embedded.storage.journal import Event, Object, Subscription
from trainyard.kube.errors import ApiError

_BOOKMARK_SECONDS = 30.0
_MAX_SECONDS = (1800.0, 3600.0)
"""How long a watch lasts when the client does not say (as kube-apiserver's minRequestTimeout)."""
_PORTION_BYTES = 256 << 10
_MAX_UNREAD_BYTES = 16 << 20
"""Changes that a slow watcher has not read; with more its watch ends, and it lists again."""
_INITIAL_END = "k8s.io/initial-events-end"


class Watch:
    """One watch: encodes changes as lines in the representation that the client accepts."""

    def __init__(
        self,
        registry: Registry,
        target: Target,
        predicate: Predicate | None,
        request: Request,
        hide: Callable[[Object], Object] | None = None,
    ) -> None:
        """`hide` takes out of an object what this user may not see."""
        self._registry = registry
        self._target = target
        self._predicate = predicate
        self._request = request
        self._hide = hide
        self._representation = negotiate_representation(request)
        self._header = True

    def response(self) -> Stream:
        """Open the stream that the request asks for."""
        asked = request_limits.positive_number(self._request, "timeoutSeconds")
        request_limits.whole_number(self._request, "resourceVersion")
        query, why = self._request.query, ""
        if "sendInitialEvents" not in query and query.get("resourceVersionMatch"):
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        elif "sendInitialEvents" in query and query.get("resourceVersionMatch") != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        if why:
            cause = StatusCause("resourceVersionMatch", f"Forbidden: {why}")
            raise invalid("ListOptions", "meta.k8s.io", "", [cause])
        return Stream(self._stream(float(asked or random.uniform(*_MAX_SECONDS))))

    async def _stream(self, seconds: float) -> AsyncGenerator[bytes]:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        bookmarks = self._request.flag("allowWatchBookmarks")
        try:
            subscription = self._open()
        except ApiError as error:
            yield _line(b"ERROR", orjson.dumps(error_status(error)))
            return
        try:
            subscription.limit(_MAX_UNREAD_BYTES)
            revision = self._registry.revision
            for lines in self._encode(subscription.pending()):
                yield lines
            if self._request.flag("sendInitialEvents"):
                yield self._bookmark(revision, initial=True)
            next_bookmark = loop.time() + _BOOKMARK_SECONDS
            while True:
                events = await _next(subscription, min(end, next_bookmark))
                if events is not None and not events:
                    return
                revision = self._registry.revision
                for lines in self._encode(subscription.pending() if events is None else events):
                    yield lines
                if events is None:
                    if bookmarks:
                        yield self._bookmark(revision)
                    if loop.time() >= end:
                        return
                    next_bookmark = loop.time() + _BOOKMARK_SECONDS
        finally:
            self._registry.unsubscribe(subscription)

    def _open(self) -> Subscription:
        asked = request_limits.whole_number(self._request, "resourceVersion") or 0
        since = 0 if self._request.flag("sendInitialEvents") else asked
        if since > self._registry.revision:
            # A version from before the state folder was wiped: the client must list again.
            raise expired(since, self._registry.revision)
        if since == 0:
            return self._registry.subscribe(self._target.storage)
        return self._registry.watch(self._target.storage, since)

    def _encode(self, events: list[Event]) -> Iterator[bytes]:
        """The lines of those changes that the watch is about, in portions.

        Each is sent before the next is made: a thousand watches of a large collection would hold
        a thousand copies of it.
        """
        lines: list[bytes] = []
        size = 0
        for event in events:
            line = self._encode_one(event)
            lines.append(line)
            size += len(line)
            if size > _PORTION_BYTES:
                yield b"".join(lines)
                lines.clear()
                size = 0
        yield b"".join(lines)

    def _bookmark(self, revision: int, *, initial: bool = False) -> bytes:
        """A bookmark, which only has a resourceVersion."""
        served = self._target.served
        metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {_INITIAL_END: "true"}
        return _line(b"BOOKMARK", orjson.dumps(self._representation.bookmark(served, metadata)))

    def _encode_one(self, event: Event) -> bytes:
        obj = event.object
        namespace = self._target.namespace
        if namespace is not None and obj["metadata"].get("namespace") != namespace:
            return b""
        type_ = event.type
        if self._predicate is not None:
            type_ = _selected_type(event, self._predicate)
            if not type_:
                return b""
        served = self._target.served
        if self._hide is not None:
            obj = self._hide(obj)
        if self._representation.kind:
            shown = self._representation.render(served, served.to_view(obj), header=self._header)
            self._header = False
            return _line(type_.encode(), orjson.dumps(shown))
        is_stored = obj is event.object and not served.view_of
        raw = event.raw if is_stored else orjson.dumps(served.to_view(obj))
        return _line(type_.encode(), raw)


async def _next(subscription: Subscription, until: float) -> list[Event] | None:
    """The next changes; empty where there will be no more, None where none come in time."""
    try:
        async with asyncio.timeout_at(until):
            return await subscription.batch()
    except TimeoutError:
        return None


def _selected_type(event: Event, predicate: Predicate) -> str:
    """The event's type as a selector sees it; empty when the event is not selected."""
    now = predicate(event.object)
    before = event.old is not None and predicate(event.old)
    if event.type == "DELETED":
        return "DELETED" if now or before else ""
    if now:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else ""


def _line(type_: bytes, raw: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (type_, raw)
