"""An API server in this process, spoken to in bytes, and a judge of what it answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import httptools
import orjson

from tests.fuzz import corpus
from tests.fuzz.asks import LIVE, Ask, smaller
from tests.fuzz.runtime import EchoRuntime
from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.apiserver.auth.request_identity import OWNER, Identity
from trainyard.embedded.apiserver.http.connection_limits import ConnectionLimiter, ConnectionLimits
from trainyard.embedded.apiserver.http.http_connection import HttpConnection
from trainyard.embedded.apiserver.router import Router
from trainyard.embedded.registry import Registry
from trainyard.machine.users import User

LIMIT_SECONDS = 300.0
"""For one answer; the slowest take a second on a slow machine."""


LIMITS = ConnectionLimits(connections=1, unauthenticated=1, per_user=1, buffered_bytes=64 << 20)
GUEST = Identity("guest", False, User(54321, 54321, "guest"))


@dataclass(frozen=True)
class Finding:
    """What is wrong with an answer, and after which requests."""

    what: str
    asks: tuple[Ask, ...]

    def __str__(self) -> str:
        return "\n  ".join([self.what, *(str(ask) for ask in self.asks)])


class Reader:
    """Reads the answer to one request."""

    def __init__(self, *, without_body: bool) -> None:
        self.without_body = without_body
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.whole = False
        self.broken = ""
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        if self.whole:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.whole = True
        except httptools.HttpParserError as error:
            if self.whole:
                return  # the parser knows no answer without a body, and took the next one for it
            self.broken = f"the answer is not HTTP: {error}: {data[:200]!r}"

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.whole:  # what follows is the answer to something sent ahead
            self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self.whole:
            return
        self.status = self._parser.get_status_code()
        self.whole = self.without_body

    def on_body(self, body: bytes) -> None:
        if not self.whole:
            self.body += body

    def on_message_complete(self) -> None:
        self.whole = self.status != 100

    @property
    def is_stream(self) -> bool:
        """A watch or a followed log: its head is all that is waited for."""
        return bool(self.status) and b"transfer-encoding" in self.headers


class Pipe(asyncio.Transport):
    """The client's end of a connection: keeps what the server writes."""

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self.reader = Reader(without_body=ask.encoded().startswith(b"HEAD "))
        self.changed = asyncio.Event()
        self.closed = False

    def write(self, data: Any) -> None:
        self.reader.feed(bytes(data))
        self.changed.set()

    def close(self) -> None:
        self.closed = True
        self.changed.set()

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


@dataclass
class Machine:
    """One server, from its start to its end."""

    registry: Registry
    api: Router
    errors: list[str] = field(default_factory=list)
    """What was logged as an error, or was caught by nobody."""
    statuses: dict[int, int] = field(default_factory=dict)
    slowest: float = 0.0

    async def play(self, ask: Ask) -> str:
        """What is wrong with the answer; "" when nothing is."""
        before = len(self.errors)
        started = time.monotonic()
        pipe = Pipe(ask)
        who = GUEST if ask.by_guest else OWNER
        slot = ConnectionLimiter(self.api, lambda headers, peer: who, LIMITS).acquire()
        assert slot is not None
        connection = HttpConnection(slot)
        connection.connection_made(pipe)
        connection.data_received(ask.encoded())
        silent = ask.raw is not None  # what never becomes a whole request gets no answer
        try:
            await self._answered(pipe, wait_seconds=0.02 if silent else LIMIT_SECONDS)
        except TimeoutError:
            if not silent:
                return f"no answer within {LIMIT_SECONDS:g} s"
        if pipe.reader.status == 101 and not pipe.closed:
            connection.data_received(ask.after)
            for _ in range(10):  # long enough to answer what a mutated stream says
                await asyncio.sleep(0)
        connection.eof_received()
        task = connection.abort()
        connection.connection_lost(None)
        if task is not None:
            _, pending = await asyncio.wait({task}, timeout=LIMIT_SECONDS)
            if pending:
                return "its connection does not end"
        self.slowest = max(self.slowest, time.monotonic() - started)
        reader = pipe.reader
        self.statuses[reader.status] = self.statuses.get(reader.status, 0) + 1
        return "; ".join([*wrong(ask, reader), *self.errors[before:]])

    async def _answered(self, pipe: Pipe, wait_seconds: float) -> None:
        async with asyncio.timeout(wait_seconds):
            while not (pipe.reader.whole or pipe.closed or pipe.reader.is_stream):
                await pipe.changed.wait()
                pipe.changed.clear()


def wrong(ask: Ask, reader: Reader) -> Iterable[str]:
    """What is wrong with an answer."""
    if reader.broken:
        yield reader.broken
    if not reader.status:
        if ask.raw is None:
            yield "closed without an answer"
        return
    if reader.without_body:
        return
    status: Any = {}
    if reader.whole and reader.headers.get(b"content-type") == b"application/json":
        try:
            status = orjson.loads(reader.body)
        except orjson.JSONDecodeError:
            yield f"the body is not JSON: {reader.body[:200]!r}"
    if reader.status >= 500 and status.get("reason") != _TOO_NEW:
        yield f"{reader.status}: {status.get('message', reader.body[:200])}"
    if 400 <= reader.status < 500 and not (status.get("message") and status.get("reason")):
        yield f"a refusal without a reason: {reader.body[:200]!r}"


_TOO_NEW = "Timeout"
"""Of a list of a version that there is not yet, as kube-apiserver answers it (504)."""


class _Log(logging.Handler):
    def __init__(self, errors: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[1] if record.exc_info else None
        self._errors.append(f"logged: {problem!r}" if problem else record.getMessage())


@asynccontextmanager
async def running() -> AsyncIterator[Machine]:
    """A server with the objects that every cluster has."""
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    await registry.create("namespaces", {"metadata": {"name": "other"}})
    pod = {**corpus.SMALL["pods"][0], "metadata": {"name": LIVE, "namespace": "default"}}
    await registry.create("pods", deepcopy(pod))
    status = corpus.STATUSES["pods"]
    await registry.update(
        "pods", "default", LIVE, lambda copy: {**copy, "status": status}, subresource="status"
    )
    machine = Machine(registry, Router(registry, EchoRuntime()))
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: machine.errors.append(f"loose: {context}"))
    handler = _Log(machine.errors)
    log = logging.getLogger("trainyard")
    log.addHandler(handler)
    propagates, log.propagate = log.propagate, False
    try:
        yield machine
    finally:
        log.propagate = propagates
        log.removeHandler(handler)
        loop.set_exception_handler(None)
        await registry.close()


async def findings(asks: Sequence[Ask], statuses: dict[int, int]) -> list[Finding]:
    """Everything that is wrong with the answers to these requests, sent one after the other."""
    found: list[Finding] = []
    async with running() as machine:
        for number, ask in enumerate(asks):
            what = await machine.play(ask)
            if what:
                found.append(Finding(what, tuple(asks[: number + 1])))
        for status, count in machine.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    return found


async def _outcome(asks: Sequence[Ask]) -> str:
    async with running() as machine:
        what = ""
        for ask in asks:
            what = await machine.play(ask)
        return what


def class_of(what: str) -> str:
    """What stays the same while a request is made smaller."""
    if what.startswith("500: "):
        return "500 " + what.partition(": ")[2].partition(": ")[2].split("'")[0][:40]
    return what[:20]


async def shrunk(finding: Finding, tries: int = 400) -> Finding:
    """The same fault with fewer and smaller requests."""
    *before, last = finding.asks
    wanted = class_of(finding.what)
    left = tries

    async def holds(asks: Sequence[Ask]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and class_of(await _outcome(asks)) == wanted

    if await holds([last]):
        before = []
    step = max(1, len(before) // 2)
    while before and step:
        for start in range(0, len(before), step):
            fewer = before[:start] + before[start + step :]
            if await holds([*fewer, last]):
                before = fewer
                break
        else:
            step //= 2
    asks = [*before, last]
    for number in range(len(asks)):
        again = True
        while again and left > 0:
            again = False
            for candidate in smaller(asks[number]):
                trial = [*asks[:number], candidate, *asks[number + 1 :]]
                if await holds(trial):
                    asks, again = trial, True
                    break
    return Finding(await _outcome(asks) or finding.what, tuple(asks))
