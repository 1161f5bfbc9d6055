"""Reading a collection page by page: the server makes the next one while one is looked at."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, NamedTuple

import orjson

from trainyard.kube.errors import StreamError

PAGE_SIZE = 200
"""Objects; of pods about a megabyte, and ten times as much once decoded."""

_TOKEN_BEFORE = re.compile(rb'\{[^\[]{,2000}?"continue":"([^"\\]+)"')
_TOKEN_BEHIND = re.compile(rb'"metadata":\{[^{}\[\]]*?"continue":"([^"\\]+)"[^\[\]]*$')
_METADATA_BYTES = 2000


class Page(NamedTuple):
    """Some objects of a collection, and the resourceVersion that all of its pages have."""

    items: list[dict[str, Any]]
    resource_version: str


async def read_pages(
    get: Callable[[str], Coroutine[Any, Any, bytes]], what: str
) -> AsyncGenerator[Page]:
    """All pages; `get` asks for one by the token of the one before, "" for the first.

    What a page holds is freed as soon as its reader lets go of it (decision 186).
    """
    token, asked = "", asyncio.ensure_future(get(""))
    try:
        while True:
            body = await asked
            guessed = _token_of(body)
            if guessed:
                asked = asyncio.ensure_future(get(guessed))
                await asyncio.sleep(0)  # it is sent before the decoder has the processor
            page = decoded(body, what)
            del body
            metadata = page.get("metadata") or {}
            token = str(metadata.get("continue") or "")
            if token != guessed:
                _drop(asked)
                asked = asyncio.ensure_future(get(token)) if token else asked
            yield Page(page.pop("items", None) or [], str(metadata.get("resourceVersion") or ""))
            if not token:
                return
    finally:
        _drop(asked)


def decoded(body: bytes, what: str) -> dict[str, Any]:
    """An object as the server sent it; raises StreamError for what is none."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise StreamError(f"cannot {what}: the answer is not JSON") from error
    if not isinstance(found, dict):
        raise StreamError(f"cannot {what}: the answer is not an object")
    return found


def _token_of(body: bytes) -> str:
    """The token of a page's metadata, as far as it can be told without decoding the page.

    Go writes the fields of its own types in order, the metadata before the items, and those of
    custom resources by name, behind them.
    """
    found = _TOKEN_BEFORE.match(body) or _TOKEN_BEHIND.search(body[-_METADATA_BYTES:])
    return found[1].decode() if found else ""


def _drop(asked: asyncio.Future[bytes]) -> None:
    """Nobody wants to know any more how it ended."""
    asked.cancel()
    asked.add_done_callback(lambda task: task.cancelled() or task.exception())
