"""List and watch: keep a local copy of a collection up to date, across every kind of break.

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
    """Where a reflector puts what it sees."""

    def replace(self, items: Sequence[T_contra], resource_version: str) -> None:
        """The whole collection, as of `resource_version`."""

    def upsert(self, item: T_contra) -> None:
        """An object was added or changed."""

    def remove(self, item: T_contra) -> None:
        """An object was deleted; `item` is its last state."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How patient a reflector is; all in seconds."""

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

    `optional`: a resource that the server does not know (a CRD that is not installed) or does not
    show us counts as empty, and is asked for again from time to time. Unless `is_patient`, a server
    that refuses or cannot be reached is an error.
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
        is_patient: bool = True,
        timing: Timing | None = None,
        rng: random.Random | None = None,
        ended: Callable[[Resource, str], None] = lambda resource, why: None,
    ) -> None:
        """`ended` is told of each watch that has to be opened again: it `ended` in order, is
        `expired` or `broken`, or was `refused`."""
        self._ended = ended
        self._client = client
        self.resource = resource
        self._decode = decode
        self._sink = sink
        self._namespace = namespace
        self._which = which
        self._optional = optional
        self._is_patient = is_patient
        self._timing = timing or Timing()
        self._random = rng or random.Random()
        self._failures = 0
        self._seen = False
        self._unread: dict[tuple[str, str], str] = {}
        self.synced = asyncio.Event()
        """Set once the first list is in the sink."""
        self.problem = ""
        """Why the server does not show the collection, if it said so when it was asked last."""

    async def run(self) -> None:
        """List and watch, for ever."""
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                started, seen = asyncio.get_running_loop().time(), False
                async with contextlib.aclosing(self._follow(version)) as versions:
                    async for reached in versions:
                        version, self._failures, seen = reached, 0, True
                self._ended(self.resource, "ended")
                if not seen and asyncio.get_running_loop().time() - started < 1:
                    await self._pause()  # a server that ends every watch at once
            except Gone:
                self._ended(self.resource, "expired")
                log.info("%s: resourceVersion expired, listing again", self.resource.full_name)
                version = ""
                if self._failures:
                    await self._pause()
                self._failures += 1
            except (NotFound, Forbidden) as error:
                version = ""
                self._ended(self.resource, "refused")
                await self._absent(error)
            except KubeError as error:
                # After an odd answer nothing is known about where the stream stood.
                if isinstance(error, ApiError | StreamError):
                    version = ""
                self._ended(self.resource, "broken")
                await self._trouble(error)

    async def _list(self) -> str:
        decoded: list[T] = []
        page = Page([], "")
        pages = self._client.pages(self.resource, self._namespace, self._which)
        async with contextlib.aclosing(pages):
            self._unread.clear()
            async for page in pages:
                decoded += [item for item in map(self._read, page.items) if item is not None]
                page.items.clear()  # the next page is decoded before this name is bound anew
        self.problem = ""
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
                    self._take(kind, raw)
                yield str(raw["metadata"]["resourceVersion"])

    def _take(self, kind: str, raw: dict[str, Any]) -> None:
        item = self._read(raw)
        if item is None:
            return
        if kind == "DELETED":
            self._sink.remove(item)
        else:
            self._sink.upsert(item)

    def _read(self, raw: dict[str, Any]) -> T | None:
        """An object decoded; None of one that cannot be, which must not hide the others.

        The sink keeps what it had of it until the next list. It is told of once.
        """
        try:
            item = self._decode(raw)
        except Exception as error:
            metadata = raw["metadata"] if isinstance(raw.get("metadata"), dict) else {}
            name = (str(metadata.get("namespace", "")), str(metadata.get("name", "")))
            problem = f"{type(error).__name__}: {error}"
            if self._unread.get(name) != problem:
                self._unread[name] = problem
                place = "/".join(filter(None, name))
                log.error("%s %s cannot be read: %s", self.resource.full_name, place, problem)
            return None
        if self._unread:
            self._unread.pop((raw["metadata"].get("namespace", ""), raw["metadata"]["name"]), None)
        return item

    async def _absent(self, error: KubeError) -> None:
        if not self._is_patient:
            raise error
        self.problem = str(error)
        # Once it has been seen, a collection does not become empty by being hidden from us.
        if not self._optional or self._seen:
            log.warning("%s", error)
            await self._pause()
            return
        if not self.synced.is_set():
            log.info("%s", error)
        self._sink.replace([], "")
        self.synced.set()
        if isinstance(error, Forbidden):  # a right may come back at any moment
            await self._pause()
            return
        await asyncio.sleep(self._timing.missing * (0.5 + self._random.random()))

    async def _trouble(self, error: KubeError) -> None:
        if self._is_patient:
            log.warning("%s: %s", self.resource.full_name, error)
        elif not isinstance(error, StreamError):
            raise error
        await self._pause()

    async def _pause(self) -> None:
        timing = self._timing
        limit = min(timing.backoff_max, timing.backoff_min * 2**self._failures)
        self._failures = min(self._failures + 1, 20)
        await asyncio.sleep(limit * (0.5 + self._random.random() / 2))


async def all_synced(reflectors: Sequence[Reflector[Any]]) -> None:
    """Wait until the first list of each is in its sink, and say so where that takes long."""
    for reflector in reflectors:
        while not reflector.synced.is_set():
            try:
                async with asyncio.timeout(30):
                    await reflector.synced.wait()
            except TimeoutError:
                log.warning("still waiting for a first list of %s", reflector.resource.full_name)
