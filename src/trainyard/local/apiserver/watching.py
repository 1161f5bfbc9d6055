"""Watch streams: changes as they are committed, filtered, as objects or as Table rows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import orjson

from trainyard.kube.errors import ApiError
from trainyard.local.apiserver.formats import rows_include, table
from trainyard.local.apiserver.http import Request, Stream
from trainyard.local.apiserver.selectors import Predicate
from trainyard.local.apiserver.target import Target
from trainyard.local.failures import Cause, bad_request, expired, invalid, status_of
from trainyard.local.registry import Registry
from trainyard.local.storage.journal import Event, Subscription

_BOOKMARK_SECONDS = 30.0
_MAX_SECONDS = (1800.0, 3600.0)
"""How long a watch lasts when the client does not say (as kube-apiserver's minRequestTimeout)."""
_INITIAL_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Watch:
    """What one watch is about."""

    registry: Registry
    target: Target
    predicate: Predicate | None


def watch_response(watch: Watch, request: Request) -> Stream:
    """Open the stream that `request` asks for."""
    return Stream(_stream(watch, request, _Encoder(watch, request), _timeout_seconds(request)))


def _timeout_seconds(request: Request) -> float:
    text = request.query.get("timeoutSeconds", "")
    if not text or text == "0":
        return random.uniform(*_MAX_SECONDS)
    if not text.isdigit():
        raise bad_request(f"timeoutSeconds must be a number of seconds, not {text!r}")
    return float(text)


async def _stream(
    watch: Watch, request: Request, encoder: _Encoder, seconds: float
) -> AsyncGenerator[bytes]:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    bookmarks = request.flag("allowWatchBookmarks")
    try:
        subscription = _open(watch, request)
    except ApiError as error:
        yield _line(b"ERROR", orjson.dumps(status_of(error)))
        return
    try:
        first = encoder.encode(subscription.pending())
        if request.flag("sendInitialEvents"):
            first += encoder.bookmark(watch.registry.revision, initial=True)
        yield first
        next_bookmark = loop.time() + _BOOKMARK_SECONDS
        while True:
            events: list[Event] = []
            try:
                async with asyncio.timeout_at(min(end, next_bookmark)):
                    events = await subscription.batch()
            except TimeoutError:
                revision = watch.registry.revision
                yield encoder.encode(subscription.pending())
                if bookmarks:
                    yield encoder.bookmark(revision)
                if loop.time() >= end:
                    return
                next_bookmark = loop.time() + _BOOKMARK_SECONDS
                continue
            if not events:
                return
            yield encoder.encode(events)
    finally:
        watch.registry.unsubscribe(subscription)


def _open(watch: Watch, request: Request) -> Subscription:
    text = request.query.get("resourceVersion", "")
    if text and not text.isdigit():
        raise bad_request(f"invalid resource version {text!r}")
    query = request.query
    if "sendInitialEvents" in query and query.get("resourceVersionMatch") != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        cause = Cause("resourceVersionMatch", f"Forbidden: {why}")
        raise invalid("ListOptions", "meta.k8s.io", "", [cause])
    since = 0 if request.flag("sendInitialEvents") else int(text or 0)
    if since > watch.registry.revision:
        # A version from before the state folder was wiped: the client must list again.
        raise expired(since, watch.registry.revision)
    if since == 0:
        return watch.registry.subscribe(watch.target.storage)
    return watch.registry.watch(watch.target.storage, since)


class _Encoder:
    """Turns changes into lines, in the client's format."""

    def __init__(self, watch: Watch, request: Request) -> None:
        self._watch = watch
        self._include = rows_include(request)
        self._header = True

    def encode(self, events: list[Event]) -> bytes:
        """The lines of those changes that the watch is about."""
        return b"".join([self._encode_one(event) for event in events])

    def bookmark(self, revision: int, *, initial: bool = False) -> bytes:
        """A line that only says how far the watch is."""
        served = self._watch.target.served
        metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {_INITIAL_END: "true"}
        obj = {"kind": served.kind, "apiVersion": served.resource.api_version, "metadata": metadata}
        if self._include is not None:
            obj = table(served, [], metadata, header=False)
        return _line(b"BOOKMARK", orjson.dumps(obj))

    def _encode_one(self, event: Event) -> bytes:
        watch = self._watch
        obj = event.object
        namespace = watch.target.namespace
        if namespace is not None and obj["metadata"].get("namespace") != namespace:
            return b""
        type_ = event.type
        if watch.predicate is not None:
            type_ = _selected_type(event, watch.predicate)
            if not type_:
                return b""
        served = watch.target.served
        if self._include is not None:
            metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            row = [served.shown(obj)]
            shown = table(served, row, metadata, include=self._include, header=self._header)
            self._header = False
            return _line(type_.encode(), orjson.dumps(shown))
        raw = orjson.dumps(served.shown(obj)) if served.view_of else event.raw
        return _line(type_.encode(), raw)


def _selected_type(event: Event, predicate: Predicate) -> str:
    """What the change looks like through a selector; empty when nothing is seen of it."""
    now = predicate(event.object)
    before = event.old is not None and predicate(event.old)
    if event.type == "DELETED":
        return "DELETED" if now or before else ""
    if now:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else ""


def _line(type_: bytes, raw: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (type_, raw)
