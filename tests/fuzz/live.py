"""A client that sends requests to a cluster in the background, by its socket and its port."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.fuzz.asks import LIVE, Ask, collection
from tests.fuzz.corpus import NAMESPACES, rows
from tests.fuzz.machine import LIMIT_SECONDS, Finding, Reader, wrong
from tests.fuzz.mutation import at, paths, put

MOST_REPLICAS = 4
"""Of a job, and pods: what is tried here is what a cluster does with odd ones, not with many."""
_AT_ONCE = 4
_COUNTS = ("replicas", "minReplicas", "maxReplicas", "expectedReplicas", "minMember")
_SECONDS_OF_SILENCE = 0.3
"""What is no whole request gets no answer."""


@dataclass
class Cluster:
    """Where a cluster of `trainyard up` is reached."""

    state: Path
    port: int
    pid: int
    token: str
    context: ssl.SSLContext
    statuses: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, state: Path) -> Cluster:
        record = json.loads((state / "cluster.json").read_text())
        token = (state / "token").read_text().strip()
        context = ssl.create_default_context(cafile=str(state / "certificates" / "ca.crt"))
        return cls(state, record["port"], record["pid"], token, context)

    @asynccontextmanager
    async def _connection(
        self, *, by_port: bool
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        if by_port:
            opened = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context)
        else:
            opened = await asyncio.open_unix_connection(self.state / "api.sock")
        try:
            yield opened
        finally:
            opened[1].transport.abort()

    async def send(self, ask: Ask, *, by_port: bool = False) -> Reader:
        """One request on a connection of its own; what is read of its answer."""
        answer = Reader(without_body=ask.encoded().startswith(b"HEAD "))
        async with self._connection(by_port=by_port) as (reader, writer):
            writer.write(ask.encoded(self.token if by_port else ""))
            limit = LIMIT_SECONDS if ask.raw is None else _SECONDS_OF_SILENCE
            try:
                async with asyncio.timeout(limit):
                    while not (answer.whole or answer.is_stream or answer.broken):
                        data = await reader.read(1 << 16)
                        if not data:
                            break
                        answer.feed(data)
                    if answer.status == 101:
                        writer.write(ask.after)
                        await writer.drain()
            except TimeoutError:
                if ask.raw is None:
                    answer.broken = f"no answer within {LIMIT_SECONDS:g} s"
            except ConnectionError:
                pass  # judged by what has come
        self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
        return answer

    async def findings(self, asks: Sequence[Ask], rng: random.Random) -> list[Finding]:
        """Everything that is wrong with the answers; a few are always under way at once."""
        found: list[Finding] = []
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(ask: Ask, *, by_port: bool) -> None:
            async with turns:
                problems = wrong(ask, await self.send(ask, by_port=by_port))
                found.extend(Finding(problem, (ask,)) for problem in problems)

        async with asyncio.TaskGroup() as tasks:
            for ask in asks:
                tasks.create_task(one(ask, by_port=rng.random() < 0.3))
        return found

    async def prepare(self) -> None:
        """A namespace more, and a pod that runs."""
        await self.send(Ask("POST", "/api/v1/namespaces", body={"metadata": {"name": "other"}}))
        container = {"name": "c", "image": "x", "command": ["sleep", "3600"]}
        pod = {"metadata": {"name": LIVE}, "spec": {"containers": [container]}}
        await self.send(Ask("POST", "/api/v1/namespaces/default/pods", body=pod))

    async def clean(self) -> None:
        """Delete what is there; what is held by finalizers stays."""
        for row in rows():
            if row.is_read_only or row.name in ("nodes", "namespaces") or row.view_of:
                continue
            for namespace in sorted(set(NAMESPACES)) if row.resource.namespaced else [""]:
                path = collection(row, namespace)
                await self.send(Ask("DELETE", path, body={"gracePeriodSeconds": 0}))

    async def check(self) -> None:
        """It answers, and is the process that it was."""
        started = time.monotonic()
        for path in ("/readyz", "/api/v1/nodes", "/api/v1/namespaces/default/pods"):
            for by_port in (False, True):
                answer = await self.send(Ask("GET", path), by_port=by_port)
                assert (answer.status, answer.broken) == (200, ""), path
        assert time.monotonic() - started < LIMIT_SECONDS
        assert Cluster.of(self.state).pid == self.pid

    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * 4096 / 1e6


def bearable(ask: Ask) -> Ask | None:
    """The request with few replicas, and none that takes the cluster's own node away."""
    if ask.method == "DELETE" and ask.path.partition("?")[0].endswith("/nodes"):
        return None
    return replace(ask, body=_few(ask.body), by_guest=False)


def _few(value: Any) -> Any:
    for path in paths(value):
        if path and path[-1] in _COUNTS and type(at(value, path)) is int:
            value = put(value, path, min(at(value, path), MOST_REPLICAS))
    return value
