"""The embedded API server beside a real kube-apiserver with etcd, taken in turn in one run.

All keep what they acknowledge on the same disk, check, default and admit pods, and are spoken to by
the same client: over the Unix socket, as everything of ours does, and over TLS with a token, as the
real one must be. So a ratio is of minutes that were alike; seconds and rates say what else the
machine had to do. What a create costs is the processor time of the servers alone (decision 298).
"""

from __future__ import annotations

import asyncio
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

import orjson
import uvloop
from tests.cluster.plane import ADMIN, RunningControlPlane
from tools.control_plane import find

from bench.apiserver import pod
from bench.plane import cpu_seconds, memory_mb
from bench.yardstick import budget, least
from trainyard.kube.http_connections import Connection, Pool, encoded
from trainyard.kube.transport import Request, Response

Row = tuple[str, float | None, str, float | None]
CREATES = {1: 200, 8: 400, 32: 400}
_RATES_BEFORE = {1: 2.76, 8: 2.94, 32: 2.47}
"""Creates a second, of what kube-apiserver and etcd make, before code was made simpler."""
"""Number of clients to pods that they create in a round; 5,000 in all."""
ROUNDS = 5
WATCHERS, SEEN, LISTS = 100, 30, 7
_CREATED = ROUNDS * sum(CREATES.values())
_PODS = "/api/v1/namespaces/bench/pods"
_PATIENCE_SECONDS = 60.0

_Stream = TypeVar("_Stream", bound=asyncio.Protocol)

_SERVER = """
import asyncio, sys
from pathlib import Path
import uvloop
from trainyard.composition.garbage_collection import collect_garbage_again
from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.apiserver.auth import certificates
from trainyard.embedded.registry import Registry
from trainyard.embedded.api_server import ApiServer
from trainyard.embedded.storage.store import Store

async def main(folder, token):
    collect_garbage_again()
    registry = Registry(Store(folder / "state.db"), resources=RESOURCES)
    await registry.ensure_system_objects()
    server, made = ApiServer(registry), certificates.ensure(folder / "pki")
    await server.serve_unix(folder / "api.sock")
    print(await server.serve_tls(0, certificate=made.certificate, key=made.key, token=token))
    sys.stdout.close()
    await asyncio.Event().wait()

uvloop.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


def measure() -> list[Row]:
    """Creates, lists, watches and memory; one row without a value where there is no real one."""
    programs = find()
    if programs is None:
        return [("beside a real kube-apiserver (there is none here)", None, "", None)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        plane = RunningControlPlane(replace(programs, controller_manager=None), folder)
        stack.callback(plane.stop)
        plane.start()
        pids = [stack.enter_context(_embedded(folder / name)) for name in ("socket", "tls")]
        return uvloop.run(_measure(folder, plane, pids))


@contextmanager
def _embedded(folder: Path) -> Iterator[tuple[int, int]]:
    """An embedded API server in a process of its own: that, and its port."""
    folder.mkdir()
    command = [sys.executable, "-c", _SERVER, str(folder), ADMIN]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()


class Side:
    """One server under measure, and what was found of it."""

    def __init__(
        self, name: str, pids: list[int], path: Path, tls: tuple[int, Path] | None
    ) -> None:
        """It listens at the Unix socket `path`; `tls`: at a port, under an authority, instead."""
        self.name, self.pids = name, pids
        self._path, self._port = str(path), 0
        self._context: ssl.SSLContext | None = None
        self._headers = {"Host": "localhost", "User-Agent": "trainyard-bench"}
        if tls is not None:
            self._port, self._context = tls[0], ssl.create_default_context(cafile=str(tls[1]))
            self._headers["Authorization"] = f"Bearer {ADMIN}"
        self._pool = Pool(name, lambda: self._connect(Connection), max_connections=64)
        self.rates: dict[int, list[float]] = {clients: [] for clients in CREATES}
        self.cpu = self.idle = self.full = 0.0
        self.seen: list[float] = []
        self.lists: list[float] = []

    async def _connect(self, protocol: Callable[[], _Stream]) -> _Stream:
        loop = asyncio.get_running_loop()
        if self._context is None:
            return (await loop.create_unix_connection(protocol, self._path))[1]
        made = loop.create_connection(protocol, "127.0.0.1", self._port, ssl=self._context)
        return (await made)[1]

    async def request(self, method: str, path: str, body: bytes = b"") -> Response:
        """What it answers, which must be a success."""
        answer = await self._pool.request(
            Request(method, path, body), self._headers, _PATIENCE_SECONDS
        )
        if answer.status >= 300:
            raise RuntimeError(f"{self.name}: {answer.status} {answer.body[:300]!r}")
        return answer

    async def prepare(self) -> None:
        """The namespace, and what it weighs while it holds nothing."""
        body = orjson.dumps({"metadata": {"name": "bench"}})
        await self.request("POST", "/api/v1/namespaces", body)
        self.idle = self.memory()

    async def create(self, clients: int, turn: int) -> None:
        """So many pods by so many clients, each of which waits for one before the next."""
        names = iter([f"c{clients}-{turn}-{number}" for number in range(CREATES[clients])])

        async def client() -> None:
            for name in names:
                await self.request("POST", _PODS, pod(name))

        cpu, started = self._cpu(), time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        self.rates[clients].append(CREATES[clients] / (time.perf_counter() - started))
        self.cpu += (self._cpu() - cpu) * 1e3 / _CREATED

    async def read(self, expected: int) -> None:
        """All pods at once."""
        started = time.perf_counter()
        answer = await self.request("GET", _PODS)
        self.lists.append((time.perf_counter() - started) * 1e3)
        if (found := len(orjson.loads(answer.body)["items"])) != expected:
            raise RuntimeError(f"{self.name} lists {found} pods of {expected}")

    async def watch(self) -> list[Watcher]:
        """Watchers of all that comes from now on."""
        listed = orjson.loads((await self.request("GET", f"{_PODS}?limit=1")).body)
        path = f"{_PODS}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}"
        watchers = [await self._connect(Watcher) for _ in range(WATCHERS)]
        for watcher in watchers:
            watcher.send(encoded(Request("GET", path), self._headers))
        return watchers

    async def see(self, watchers: list[Watcher], name: str) -> None:
        """How long after a create is sent all of them have been told of the pod."""
        told = [watcher.expect(name) for watcher in watchers]
        started = time.perf_counter()
        await self.request("POST", _PODS, pod(name))
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await asyncio.gather(*told)
        self.seen.append((time.perf_counter() - started) * 1e3)

    def memory(self) -> float:
        """Resident, of all its processes."""
        return sum(map(memory_mb, self.pids))

    def _cpu(self) -> float:
        return sum(map(cpu_seconds, self.pids))


class Watcher(asyncio.Protocol):
    """A watch of which nothing is read but the name that is waited for."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._name, self._end = b"", b""
        self._told: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def send(self, request: bytes) -> None:
        """Ask for the watch."""
        assert self._transport is not None
        self._transport.write(request)

    def expect(self, name: str) -> asyncio.Future[None]:
        """Done when the name comes."""
        self._name, self._end = name.encode(), b""
        self._told = asyncio.get_running_loop().create_future()
        return self._told

    def data_received(self, data: bytes) -> None:
        told = self._told
        if told is None or told.done():
            return
        data, self._end = self._end + data, data[-len(self._name) :]
        if self._name in data:
            told.set_result(None)


async def _measure(
    folder: Path, plane: RunningControlPlane, embedded: list[tuple[int, int]]
) -> list[Row]:
    (ours, _), (secured, port) = embedded
    sides = [
        Side("embedded", [ours], folder / "socket" / "api.sock", None),
        Side("embedded, TLS", [secured], folder, (port, folder / "tls" / "pki" / "ca.crt")),
        Side("kube-apiserver and etcd", plane.pids, folder, (plane.port, plane.authority)),
    ]
    for side in sides:
        await side.prepare()
    await _create(sides)
    for side in sides:
        side.full = side.memory()
    for turn in range(LISTS):
        for side in _in_turn(sides, turn):
            await side.read(_CREATED)
    watchers = {side: await side.watch() for side in sides}
    for side in sides:
        await side.see(watchers[side], "first")
        side.seen.clear()  # every watch has begun now
    for turn in range(SEEN):
        for side in _in_turn(sides, turn):
            await side.see(watchers[side], f"seen-{turn}")
    return _rows(*sides)


async def _create(sides: list[Side]) -> None:
    for turn in range(ROUNDS):
        for clients in CREATES:
            for side in _in_turn(sides, turn):
                await side.create(clients, turn)


def _in_turn(sides: list[Side], turn: int) -> list[Side]:
    """None of them is always the first."""
    first = turn % len(sides)
    return sides[first:] + sides[:first]


def _rows(ours: Side, secured: Side, real: Side) -> list[Row]:
    rows: list[Row] = []
    for clients in CREATES:
        what = f"durable pod creates, {clients} client{'s' if clients > 1 else ''}: "
        rates = {side: side.rates[clients] for side in (ours, secured, real)}
        rows += _compared(what, "/s", rates, ("of it", least(_RATES_BEFORE[clients])))
    rows += _compared(
        "processor time a create: ",
        "ms",
        {s: [s.cpu] for s in (ours, secured, real)},
        ("x", budget(0.19)),
    )
    what = f"list of {_CREATED:,} pods, p50: "
    rows += _compared(what, "ms", {s: s.lists for s in (ours, secured, real)}, ("x", 1.0))
    what = f"a create sent, to {WATCHERS} watchers told, p50: "
    rows += _compared(what, "ms", {s: s.seen for s in (ours, secured, real)}, ("x", 1.0))
    rows += _compared("resident, idle: ", "MB", {s: [s.idle] for s in (ours, real)}, ("x", 1.0))
    what = f"resident with {_CREATED:,} pods: "
    rows += _compared(what, "MB", {s: [s.full] for s in (ours, real)}, ("x", 1.0))
    return rows


def _compared(
    what: str, unit: str, found: Mapping[Side, list[float]], ratio: tuple[str, float]
) -> list[Row]:
    """The medians, and those of the ratios to the last side; the limit is that of the first's."""
    rows: list[Row] = [
        (what + side.name, statistics.median(values), unit, None) for side, values in found.items()
    ]
    *mine, theirs = found.values()
    word, limit = ratio
    for side, values in zip(found, mine, strict=False):
        share = statistics.median(a / b for a, b in zip(values, theirs, strict=True))
        is_first = values is mine[0]
        rows.append((f"ratio, {side.name}", share, word, limit if is_first else None))
    return rows
