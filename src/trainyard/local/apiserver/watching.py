"""Watch streams: changes as they are committed, filtered, as objects or as Table rows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import orjson

from trainyard.kube.errors import ApiError
from trainyard.local.apiserver.formats import include_objects, table_parameters
from trainyard.local.apiserver.http import Request, Stream
from trainyard.local.apiserver.selectors import Predicate
from trainyard.local.apiserver.target import Target
from trainyard.local.failures import Cause, bad_request, expired, invalid, status_of
from trainyard.local.registry import Registry
from trainyard.local.storage.journal import Event, Object, Subscription

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
    seconds = _timeout_seconds(request)
    encoder = _Encoder(watch, request)
    return Stream(_stream(watch, request, encoder, seconds), encoder.content_type)


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
    if "sendInitialEvents" in request.query:
        if request.query.get("resourceVersionMatch") != "NotOlderThan":
            raise invalid(
                "ListOptions",
                "meta.k8s.io",
                "",
                [
                    Cause(
                        "resourceVersionMatch",
                        "Forbidden: sendInitialEvents requires setting resourceVersionMatch "
                        "to NotOlderThan",
                    )
                ],
            )
        if request.flag("sendInitialEvents"):
            return watch.registry.subscribe(watch.target.storage)
    since = int(text or 0)
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
        self._table = table_parameters(request)
        self._include = include_objects(request)
        self._header = True
        self.content_type = "application/json"

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
        if self._table is not None:
            from trainyard.local.apiserver import tables

            obj = tables.render(served, [], metadata, header=False)
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
        if self._table is not None:
            return self._row(type_, obj)
        served = watch.target.served
        raw = orjson.dumps(served.shown(obj)) if served.view_of else event.raw
        return _line(type_.encode(), raw)

    def _row(self, type_: str, obj: Object) -> bytes:
        from trainyard.local.apiserver import tables

        served = self._watch.target.served
        metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        table = tables.render(
            served, [served.shown(obj)], metadata, include=self._include, header=self._header
        )
        self._header = False
        return _line(type_.encode(), orjson.dumps(table))


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
