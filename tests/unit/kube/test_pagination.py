"""Collections that a server hands out page by page, as kube-apiserver writes them."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import pytest

from tests.simulation.virtual_time import run
from trainyard.kube.client import Client
from trainyard.kube.errors import Gone, Unreachable
from trainyard.kube.reflector import Reflector
from trainyard.kube.resources import PODS
from trainyard.kube.transport import Request, Response, StreamResponse

Object = dict[str, Any]


class Pages:
    """A transport to a server with that many pods, which forgets its list `gone` times."""

    def __init__(self, count: int, *, behind: bool = False, gone: int = 0, size: int = 0) -> None:
        self.count = count
        self.behind = behind
        self.gone = gone
        self.size = size
        self.asked: list[str] = []

    async def request(self, request: Request, timeout_seconds: float) -> Response:
        await asyncio.sleep(0.01)
        query = {k: v[0] for k, v in parse_qs(urlsplit(request.path).query).items()}
        token = query.get("continue", "")
        self.asked.append(token)
        start = int(token.removeprefix("from-") or 0)
        if start >= 400 and self.gone:
            self.gone -= 1
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            return Response(410, {}, orjson.dumps(status))
        end = min(start + int(query["limit"]), self.count)
        metadata = {"resourceVersion": "7"}
        if end < self.count:
            metadata = {"continue": f"from-{end}", "remainingItemCount": 1, **metadata}
        items = [self.pod(number) for number in range(start, end)]
        head = {"kind": "PodList", "apiVersion": "v1"}
        if self.behind:
            return Response(200, {}, orjson.dumps({**head, "items": items, "metadata": metadata}))
        return Response(200, {}, orjson.dumps({**head, "metadata": metadata, "items": items}))

    def pod(self, number: int) -> Object:
        # As much as to mislead whoever looks for a token in the text.
        misleading = {"continue": "from-0", "metadata": '{"continue":"from-0"}'}
        environment = [{"name": f"N{n}", "value": f"{number}"} for n in range(self.size)]
        metadata = {
            "name": f"p{number}",
            "namespace": "d",
            "uid": f"u{number}",
            "labels": misleading,
        }
        return {"metadata": {**metadata, "resourceVersion": "5"}, "spec": environment}

    @asynccontextmanager
    async def stream(
        self, request: Request, timeout_seconds: float
    ) -> AsyncIterator[StreamResponse]:
        raise Unreachable("nothing to watch")
        yield

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("count", [0, 1, 200, 201, 1000])
@pytest.mark.parametrize("behind", [False, True])
def test_every_page_is_read_once_wherever_its_token_stands(count: int, behind: bool) -> None:
    async def main() -> None:
        server = Pages(count, behind=behind)
        items, version = await Client(server).list(PODS)
        assert [item["metadata"]["name"] for item in items] == [f"p{n}" for n in range(count)]
        assert version == "7"
        assert server.asked == ["", *(f"from-{n}" for n in range(200, count, 200))]

    run(main())


def test_a_list_that_the_server_has_forgotten_midway_raises_gone() -> None:
    async def main() -> None:
        with pytest.raises(Gone):
            await Client(Pages(1000, gone=1)).list(PODS)

    run(main())


class Copy:
    """What a reflector feeds."""

    def __init__(self) -> None:
        self.lists: list[Sequence[str]] = []

    def replace(self, items: Sequence[str], resource_version: str) -> None:
        assert resource_version == "7"
        self.lists.append(items)

    def upsert(self, item: str) -> None:
        raise AssertionError(item)

    def remove(self, item: str) -> None:
        raise AssertionError(item)


def test_a_reflector_begins_anew_and_shows_no_half_of_a_list() -> None:
    async def main() -> None:
        copy, server = Copy(), Pages(1000, gone=2)
        reflector = Reflector(Client(server), PODS, lambda pod: pod["metadata"]["name"], copy)
        task = asyncio.create_task(reflector.run())
        async with asyncio.timeout(600):
            await reflector.synced.wait()
        assert [len(each) for each in copy.lists] == [1000]
        task.cancel()

    run(main())


def test_a_first_list_takes_the_memory_of_a_page_or_two() -> None:
    """Of 800 pods with 60 variables each, whole: 20 MB."""

    async def main() -> None:
        copy = Copy()
        reflector = Reflector(
            Client(Pages(800, size=60)), PODS, lambda pod: pod["metadata"]["name"], copy
        )
        task = asyncio.create_task(reflector.run())
        async with asyncio.timeout(600):
            await reflector.synced.wait()
        assert len(copy.lists[0]) == 800
        task.cancel()

    tracemalloc.start()
    try:
        run(main())
        assert tracemalloc.get_traced_memory()[1] < 14e6
    finally:
        tracemalloc.stop()
