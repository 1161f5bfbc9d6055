"""Keeps a local copy of a collection up to date by list and watch, across every failure.

The order of events is Kubernetes' own (https://kubernetes.io/docs/reference/using-api/
api-concepts/#efficient-detection-of-changes): list, watch from the list's resourceVersion,
move along with events and bookmarks, and on 410 list again. A new list replaces the copy as a
whole, so deletions that happened while nobody watched are seen as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from trainyard.kube.client import EVERYTHING, Client, Selection
from trainyard.kube.errors import ApiError, Forbidden, Gone, KubeError, NotFound, StreamError
from trainyard.kube.pagination import Page
from trainyard.kube.resources import Resource
from trainyard.schema.dataclass import dataclass

log = logging.getLogger(__name__)

_KINDS = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Sink(Protocol[T_contra]):
    """Where a reflector puts the objects."""

    def replace(self, items: Sequence[T_contra], resource_version: str) -> None:
        """The whole collection, as of `resource_version`."""

    def upsert(self, item: T_contra) -> None:
        """An object was added or changed."""

    def remove(self, item: T_contra) -> None:
        """An object was deleted; `item` is its last state."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The timeouts of a reflector, all in seconds."""

    watch_timeout: float = 90.0
    """The server is asked to end a watch after this long, plus up to as much again."""
    overdue: float = 30.0
    """A watch in which nothing comes, and that has not ended this long after it should have, is
    dead. Silence before that is none: servers before 1.21 send bookmarks at the end only."""
    backoff_min: float = 0.2
    backoff_max: float = 30.0
    missing: float = 60.0
    """Wait before asking again for a resource that the server does not serve."""


class Reflector(Generic[T]):
    """Feeds `sink` with the decoded objects of one resource until cancelled.

    With `optional`, a resource that the server does not know (a CRD that is not installed) or does
    not let us read counts as empty, and is tried again from time to time. Without `retries_errors`
    a refusal, or a server that cannot be reached, is raised.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        decode: Callable[[dict[str, Any]], T],
        sink: Sink[T],
        *,
        namespace: str | None = None,
        which: Selection = EVERYTHING,
        optional: bool = False,
        retries_errors: bool = True,
        timing: Timing | None = None,
        rng: random.Random | None = None,
        on_watch_end: Callable[[Resource, str], None] = lambda resource, why: None,
    ) -> None:
        """`on_watch_end` is called for each watch that has to be opened again, with the reason:
        `ended` (in order), `expired`, `broken` or `refused`."""
        self._on_watch_end = on_watch_end
        self._client = client
        self.resource = resource
        self._decode = decode
        self._sink = sink
        self._namespace = namespace
        self._which = which
        self._optional = optional
        self._retries_errors = retries_errors
        self._timing = timing or Timing()
        self._random = rng or random.Random()
        self._failures = 0
        self._seen = False
        self._undecodable: dict[tuple[str, str], str] = {}
        self.synced = asyncio.Event()
        """Set once the first list is in the sink."""
        self.problem: NotFound | Forbidden | None = None
        """Why the server does not show the collection, if it refused the last request."""

    async def run(self) -> None:
        """List and watch until cancelled."""
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                started, seen = asyncio.get_running_loop().time(), False
                async with contextlib.aclosing(self._follow(version)) as versions:
                    async for reached in versions:
                        version, self._failures, seen = reached, 0, True
                self._on_watch_end(self.resource, "ended")
                if not seen and asyncio.get_running_loop().time() - started < 1:
                    await self._back_off()  # a server that ends every watch at once
            except Gone:
                self._on_watch_end(self.resource, "expired")
                log.info("%s: resourceVersion expired, listing again", self.resource.full_name)
                version = ""
                if self._failures:
                    await self._back_off()
                self._failures += 1
            except (NotFound, Forbidden) as error:
                version = ""
                self._on_watch_end(self.resource, "refused")
                await self._handle_missing(error)
            except KubeError as error:
                # After an odd answer nothing is known about where the stream stood.
                if isinstance(error, ApiError | StreamError):
                    version = ""
                self._on_watch_end(self.resource, "broken")
                await self._handle_error(error)

    async def _list(self) -> str:
        decoded: list[T] = []
        page = Page([], "")
        pages = self._client.pages(self.resource, self._namespace, self._which)
        async with contextlib.aclosing(pages):
            self._undecodable.clear()
            async for page in pages:
                decoded += [item for item in map(self._try_decode, page.items) if item is not None]
                page.items.clear()  # the next page is decoded before this name is bound anew
        self.problem = None
        self._sink.replace(decoded, page.resource_version)
        self._seen = True
        self.synced.set()
        return page.resource_version

    async def _follow(self, version: str) -> AsyncGenerator[str]:
        """One watch; yields the resourceVersion reached after every event."""
        timing = self._timing
        seconds = int(timing.watch_timeout * (1 + self._random.random()))
        events = self._client.watch(
            self.resource,
            self._namespace,
            self._which,
            resource_version=version,
            timeout_seconds=seconds,
            idle_seconds=seconds + timing.overdue,
        )
        async with contextlib.aclosing(events):
            async for kind, raw in events:
                if kind not in _KINDS:
                    raise StreamError(f"watch of {self.resource.full_name}: event type {kind}")
                if kind != "BOOKMARK":
                    self._apply(kind, raw)
                yield str(raw["metadata"]["resourceVersion"])

    def _apply(self, kind: str, raw: dict[str, Any]) -> None:
        item = self._try_decode(raw)
        if item is None:
            return
        if kind == "DELETED":
            self._sink.remove(item)
        else:
            self._sink.upsert(item)

    def _try_decode(self, raw: dict[str, Any]) -> T | None:
        """Decode an object; None if that fails, so that one bad object does not hide the others.

        The sink keeps the last good state until the next list. Each problem is logged once.
        """
        try:
            item = self._decode(raw)
        except Exception as error:
            metadata = raw["metadata"] if isinstance(raw.get("metadata"), dict) else {}
            name = (str(metadata.get("namespace", "")), str(metadata.get("name", "")))
            problem = f"{type(error).__name__}: {error}"
            if self._undecodable.get(name) != problem:
                self._undecodable[name] = problem
                place = "/".join(filter(None, name))
                log.error("%s %s cannot be read: %s", self.resource.full_name, place, problem)
            return None
        if self._undecodable:
            self._undecodable.pop(
                (raw["metadata"].get("namespace", ""), raw["metadata"]["name"]), None
            )
        return item

    async def _handle_missing(self, error: NotFound | Forbidden) -> None:
        if not self._retries_errors:
            raise error
        self.problem = error
        # Once it has been seen, a collection does not become empty by being hidden from us.
        if not self._optional or self._seen:
            log.warning("%s", error)
            await self._back_off()
            return
        if not self.synced.is_set():
            log.info("%s", error)
        self._sink.replace([], "")
        self.synced.set()
        if isinstance(error, Forbidden):  # a right may come back at any moment
            await self._back_off()
            return
        await asyncio.sleep(self._timing.missing * (0.5 + self._random.random()))

    async def _handle_error(self, error: KubeError) -> None:
        if self._retries_errors:
            log.warning("%s: %s", self.resource.full_name, error)
        elif not isinstance(error, StreamError):
            raise error
        await self._back_off()

    async def _back_off(self) -> None:
        timing = self._timing
        limit = min(timing.backoff_max, timing.backoff_min * 2**self._failures)
        self._failures = min(self._failures + 1, 20)
        await asyncio.sleep(limit * (0.5 + self._random.random() / 2))


async def wait_until_synced(reflectors: Sequence[Reflector[Any]]) -> None:
    """Wait until the first list of each is in its sink; log a warning every 30 s."""
    for reflector in reflectors:
        while not reflector.synced.is_set():
            try:
                async with asyncio.timeout(30):
                    await reflector.synced.wait()
            except TimeoutError:
                log.warning("still waiting for a first list of %s", reflector.resource.full_name)
