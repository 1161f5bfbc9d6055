"""The way between a controller and the modelled API server, on which everything can go wrong.

Every request has a way there and a way back, each of which takes time, so that the controller can
die, and others can write, at any point. What happens to a request is drawn when it is sent, which
keeps a run the same whatever order tasks are cancelled in.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote

import orjson

from tests.simulation.server import Key, ModelServer, Refused
from trainyard.kube.errors import Unreachable
from trainyard.kube.transport import Request, Response, StreamResponse

_BOOKMARK_SECONDS = 100.0


class Fault(StrEnum):
    """What can happen to one request."""

    NONE = "none"
    LOST_REQUEST = "lost request"
    LOST_RESPONSE = "lost response"
    LATE_WRITE = "late write"
    CONFLICT = "conflict"
    REFUSED = "refused creation"
    SERVER_ERROR = "server error"
    THROTTLED = "throttled"
    SLOW = "slow"
    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    CRASH_LATE = "crash, write arrives late"


CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_LATE)


class WatchFault(StrEnum):
    """What can happen to the watches."""

    STALE = "stale watch"
    CUT = "watch cut"
    EXPIRED = "watch 410"
    SILENT = "silent watch"


class Call(NamedTuple):
    """A request, taken apart."""

    method: str
    key: Key
    subresource: str
    params: dict[str, str]
    body: Any

    @property
    def is_write(self) -> bool:
        """Whether it may change something."""
        return self.method != "GET"


class Sent(NamedTuple):
    """A write as the invariants see it."""

    call: Call
    incarnation: int


class _Trip(NamedTuple):
    """Times of one request in seconds, drawn when it is sent."""

    there: float
    back: float
    slow: float
    late: float
    lands_late: bool

    @classmethod
    def draw(cls, rng: random.Random) -> _Trip:
        return cls(
            there=rng.uniform(0.0005, 0.004),
            back=rng.uniform(0.0005, 0.004),
            slow=rng.uniform(0.1, 5.0),
            late=rng.uniform(0.01, 8.0),
            lands_late=rng.random() < 0.5,
        )


def parse(request: Request) -> Call:
    """A request from its HTTP form."""
    key, subresource, params = _parse_path(request.path)
    body = orjson.loads(request.body) if request.body else None
    return Call(request.method, key, subresource, params, body)


@lru_cache(maxsize=4096)
def _parse_path(url: str) -> tuple[Key, str, dict[str, str]]:
    path, _, query = url.partition("?")
    params = {name: values[0] for name, values in parse_qs(query).items()}
    parts = [unquote(part) for part in path.strip("/").split("/")]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    name = parts[1] if len(parts) > 1 else ""
    return Key(parts[0], namespace, name), parts[2] if len(parts) > 2 else "", params


@dataclass(slots=True)
class Conditions:
    """The state of the network; the fault scheduler changes it."""

    fate: Callable[[Call], Fault]
    """Draws what happens to a request."""
    touch: Callable[[Key], None]
    """Has someone else write to the object, just before."""
    lag: dict[str, float] = field(default_factory=dict)
    """Watches of a resource deliver this many seconds late."""
    silenced_at: dict[str, float] = field(default_factory=dict)
    """Watches of a resource that were opened before this moment deliver nothing any more."""
    generation: int = 0
    """Raised to cut every watch that is open."""


@dataclass(slots=True, eq=False)
class Wire:
    """The transport of one incarnation of the controller."""

    server: ModelServer
    conditions: Conditions
    rng: random.Random
    incarnation: int
    crash: Callable[[], object]
    sent: Callable[[Sent], None]
    created: Callable[[Sent, Any], None]
    is_dead: bool = False
    """The process behind it has died: nothing is sent any more."""
    stands_by: bool = False
    """It only watches, and nothing befalls its requests."""

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        """One request, and whatever the network makes of it."""
        if self.is_dead:
            raise Unreachable("the process is dead")
        call = parse(request)
        loop = asyncio.get_running_loop()
        fault = self._fate(call)
        trip = _Trip.draw(self.rng)
        sent = Sent(call, self.incarnation)
        if call.is_write:
            self.sent(sent)
        if fault is Fault.CONFLICT:
            self.conditions.touch(call.key)
        if fault in (Fault.CRASH_LATE, Fault.LATE_WRITE):
            loop.call_later(trip.late, self._apply, call)
        if fault in (Fault.CRASH_BEFORE, Fault.CRASH_LATE):
            await self._die()
        if fault in (Fault.LOST_REQUEST, Fault.LATE_WRITE):
            await asyncio.sleep(trip.there + (timeout_seconds if trip.lands_late else 0))
            raise Unreachable("the connection was lost")
        try:
            await asyncio.sleep(trip.there)
        except asyncio.CancelledError:
            if trip.lands_late:  # the controller died, but the request was on its way
                loop.call_later(trip.late, self._apply, call)
            raise
        return await self._answer(sent, fault, trip)

    def _fate(self, call: Call) -> Fault:
        return Fault.NONE if self.stands_by else self.conditions.fate(call)

    async def _answer(self, sent: Sent, fault: Fault, trip: _Trip) -> Response:
        response = self._refusal(fault) or self._apply(sent.call)
        if fault is Fault.CRASH_AFTER:
            await self._die()
        await asyncio.sleep(trip.slow if fault is Fault.SLOW else trip.back)
        if fault is Fault.LOST_RESPONSE:
            raise Unreachable("the connection was lost")
        if sent.call.method == "POST" and response.status < 300:
            self.created(sent, orjson.loads(response.body))
        return response

    async def _die(self) -> None:
        self.crash()
        await asyncio.Event().wait()

    def _refusal(self, fault: Fault) -> Response | None:
        if fault is Fault.REFUSED:
            refused = Refused(403, "Forbidden", "exceeded quota")
        elif fault is Fault.SERVER_ERROR:
            refused = Refused(500, "InternalError", "etcdserver: leader changed")
        elif fault is Fault.THROTTLED:
            return Response(429, {"retry-after": "1"}, Refused(429, "TooManyRequests").body())
        else:
            return None
        return Response(refused.code, {}, refused.body())

    def _apply(self, call: Call) -> Response:
        try:
            body = self._serve(call)
        except Refused as refused:
            return Response(refused.code, {}, refused.body())
        return Response(200, {}, orjson.dumps(body))

    def _serve(self, call: Call) -> Any:
        server, (method, key, subresource, params, body) = self.server, call
        if method == "GET" and key.name:
            return server.get(key)
        if method == "GET":
            label, fields = params.get("labelSelector", ""), params.get("fieldSelector", "")
            return {
                "metadata": {"resourceVersion": str(server.version)},
                "items": server.all(key.plural, label, fields),
            }
        if method == "POST":
            return server.create(key.plural, key.namespace, body)
        if method == "PUT":
            return server.replace(key, body, status_only=subresource == "status")
        if method == "PATCH":
            return server.patch(key, body)
        if method == "DELETE":
            options = body or {}
            return server.delete(
                key,
                uid=(options.get("preconditions") or {}).get("uid"),
                grace=options.get("gracePeriodSeconds"),
            )
        raise Refused(405, "MethodNotAllowed", f"{method} {key.plural}/{subresource}")

    @asynccontextmanager
    async def stream(
        self, request: Request, timeout_seconds: float
    ) -> AsyncIterator[StreamResponse]:
        """A watch."""
        call = parse(request)
        fault = self._fate(call)
        if fault in CRASHES:
            await self._die()
        await asyncio.sleep(self.rng.uniform(0.0005, 0.004))
        if fault in (Fault.LOST_REQUEST, Fault.LOST_RESPONSE):
            raise Unreachable("the connection was lost")
        start = int(call.params["resourceVersion"])
        yield StreamResponse(200, {}, self._watch(call, start))

    async def _watch(self, call: Call, version: int) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        server, conditions, plural = self.server, self.conditions, call.key.plural
        generation = conditions.generation
        opened = loop.time()
        end = opened + float(call.params["timeoutSeconds"])
        label = call.params.get("labelSelector", "")
        while loop.time() < end:
            if generation != conditions.generation:
                raise Unreachable("the watch was cut")
            if version < server.compacted:
                gone = orjson.loads(Refused(410, "Expired", "too old resource version").body())
                yield _line("ERROR", gone)
                return
            if opened < conditions.silenced_at.get(plural, 0.0):
                await asyncio.Event().wait()  # half open: nothing ends it from the other side
            changes = server.changes(plural, version)
            if changes:
                version = changes[-1].version
                lines = [
                    _line(change.type, change.object)
                    for change in changes
                    if not label or label in (change.object["metadata"].get("labels") or {})
                ]
                lag = conditions.lag.get(plural, 0.0)
                await asyncio.sleep(lag + self.rng.uniform(0.0005, 0.01))
                if lines:
                    yield b"".join(lines)
                continue
            try:
                async with asyncio.timeout(min(_BOOKMARK_SECONDS, end - loop.time())):
                    await server.movement(plural).wait()
            except TimeoutError:
                if not server.changes(plural, version):
                    version = max(version, server.version)
                    metadata = {"metadata": {"resourceVersion": str(version)}}
                    yield _line("BOOKMARK", metadata)

    async def aclose(self) -> None:
        """Nothing to close."""


def _line(type_: str, obj: Any) -> bytes:
    return orjson.dumps({"type": type_, "object": obj}) + b"\n"
