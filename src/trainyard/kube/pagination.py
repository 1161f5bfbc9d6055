"""Reads a collection page by page; the server prepares the next page while one is decoded."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, NamedTuple

import orjson

from trainyard.kube.errors import StreamError

PAGE_SIZE = 200
"""Objects; of pods about a megabyte, and ten times as much once decoded."""

_TOKEN_BEFORE_ITEMS = re.compile(rb'\{[^\[]{,2000}?"continue":"([^"\\]+)"')
_TOKEN_AFTER_ITEMS = re.compile(rb'"metadata":\{[^{}\[\]]*?"continue":"([^"\\]+)"[^\[\]]*$')
_METADATA_BYTES = 2000


class Page(NamedTuple):
    """Some objects of a collection, and the resourceVersion that all of its pages have."""

    items: list[dict[str, Any]]
    resource_version: str


async def read_pages(
    get: Callable[[str], Coroutine[Any, Any, bytes]], what: str
) -> AsyncGenerator[Page]:
    """Yield all pages; `get` requests one by the token of the page before, "" for the first.

    A page is freed as soon as its reader drops it (decision 186).
    """
    token, asked = "", asyncio.ensure_future(get(""))
    try:
        while True:
            body = await asked
            guessed = _find_token(body)
            if guessed:
                asked = asyncio.ensure_future(get(guessed))
                await asyncio.sleep(0)  # it is sent before the decoder has the processor
            page = decode_object(body, what)
            del body
            metadata = page.get("metadata") or {}
            token = str(metadata.get("continue") or "")
            if token != guessed:
                _discard(asked)
                asked = asyncio.ensure_future(get(token)) if token else asked
            yield Page(page.pop("items", None) or [], str(metadata.get("resourceVersion") or ""))
            if not token:
                return
    finally:
        _discard(asked)


def decode_object(body: bytes, what: str) -> dict[str, Any]:
    """Decode a JSON object; raises StreamError for anything else."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise StreamError(f"cannot {what}: the answer is not JSON") from error
    if not isinstance(found, dict):
        raise StreamError(f"cannot {what}: the answer is not an object")
    return found


def _find_token(body: bytes) -> str:
    """Return the continue token of a page without decoding it, "" if it is not found.

    Go writes the fields of its own types in order, the metadata before the items, and those of
    custom resources by name, behind them.
    """
    found = _TOKEN_BEFORE_ITEMS.match(body) or _TOKEN_AFTER_ITEMS.search(body[-_METADATA_BYTES:])
    return found[1].decode() if found else ""


def _discard(asked: asyncio.Future[bytes]) -> None:
    """Cancel a request whose answer nobody needs."""
    asked.cancel()
    asked.add_done_callback(lambda task: task.cancelled() or task.exception())
