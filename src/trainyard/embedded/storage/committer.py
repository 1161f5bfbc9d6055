"""Group commit: many writes of one moment share one durable commit.

Writes are staged at once, so that the next write sees them; they become visible to readers and
watchers only when the commit has succeeded. A failed commit also discards everything staged on
top of it. On a fast disk the commit runs in the event loop, once per iteration, which is fastest;
on a slow disk it runs in a thread, so that the loop stays responsive.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from trainyard.embedded.storage.journal import Entry
from trainyard.embedded.storage.row_writes import StorageError, Write

if TYPE_CHECKING:
    from trainyard.embedded.storage.store import Store

_SLOW_COMMIT_SECONDS = 0.003
_BACKUP_SECONDS = 20.0
_BACKUP_SHARE = 0.01
"""Of the time, at most, in which writes wait for a copy of the store."""


class Key(NamedTuple):
    """The identity of an object."""

    resource: str
    namespace: str
    name: str


class Change(NamedTuple):
    """One staged write: `entry` None means that the object is gone, `final` its last version."""

    key: Key
    type: str
    entry: Entry | None
    final: Entry
    old: Entry | None
    done: asyncio.Future[None]


class Committer:
    """Stages changes, commits them in groups and hands each committed group to `publish`."""

    def __init__(
        self, store: Store | None, publish: Callable[[Sequence[Change]], None], revision: int
    ) -> None:
        self._store = store
        self._publish = publish
        self._batch: list[Change] = []
        self._staged: dict[Key, Change] = {}
        self._scheduled = False
        self._in_flight: asyncio.Task[None] | None = None
        self._typical_seconds = 0.0
        self.revision = revision
        """The last resourceVersion given out."""

    def staged(self, key: Key) -> Change | None:
        """The newest write of this object that has not been committed yet."""
        return self._staged.get(key)

    def all_staged(self) -> Sequence[Change]:
        """The newest write of every object that has not been committed yet."""
        return tuple(self._staged.values())

    def check_room(self) -> None:
        """Raise DiskFull where there is no room for a write that adds something."""
        if self._store is not None:
            self._store.check_room(can_retry=self._in_flight is None)

    def stage(self, change: Change) -> None:
        """Add a change to the next commit."""
        self._batch.append(change)
        self._staged[change.key] = change
        if not self._scheduled and self._in_flight is None:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    async def keep_backup(self) -> None:
        """Copy the store whenever it has changed, until cancelled; writes wait meanwhile."""
        pause = _BACKUP_SECONDS
        while self._store is not None:
            await asyncio.sleep(pause)
            while self._in_flight is not None:
                await asyncio.wait({self._in_flight})
            started = time.perf_counter()
            self._in_flight = asyncio.create_task(self._back_up_in_thread(self._store))
            await asyncio.shield(self._in_flight)
            pause = max(_BACKUP_SECONDS, (time.perf_counter() - started) / _BACKUP_SHARE)

    async def close(self) -> None:
        """Commit what is staged, then close the store."""
        while self._batch or self._in_flight is not None:
            if self._in_flight is not None:
                await asyncio.wait({self._in_flight})
            else:
                self._flush()
        if self._store is not None:
            self._store.close()

    def _flush(self) -> None:
        self._scheduled = False
        if not self._batch or self._in_flight is not None:
            return
        batch, self._batch = self._batch, []
        if self._store is None:
            self._settle(batch, None)
        elif self._typical_seconds < _SLOW_COMMIT_SECONDS:
            self._settle(batch, self._commit(self._store, batch, self.revision))
        else:
            self._in_flight = asyncio.create_task(self._commit_in_thread(self._store, batch))

    async def _commit_in_thread(self, store: Store, batch: list[Change]) -> None:
        try:
            failure = await asyncio.to_thread(self._commit, store, batch, self.revision)
            self._settle(batch, failure)
        finally:
            self._in_flight = None
            self._flush()

    async def _back_up_in_thread(self, store: Store) -> None:
        try:
            await asyncio.to_thread(store.back_up)
        finally:
            self._in_flight = None
            self._flush()

    def _commit(self, store: Store, batch: Sequence[Change], revision: int) -> StorageError | None:
        started = time.perf_counter()
        rows = [Write(*change.key, change.entry.raw if change.entry else None) for change in batch]
        try:
            store.commit(rows, revision)
        except StorageError as error:
            return error
        took = time.perf_counter() - started
        self._typical_seconds += (took - self._typical_seconds) / 8
        return None

    def _settle(self, batch: Sequence[Change], failure: StorageError | None) -> None:
        if failure is not None:
            self._fail(batch, failure)
            return
        for change in batch:
            if self._staged.get(change.key) is change:
                del self._staged[change.key]
        self._publish(batch)
        for change in batch:
            if not change.done.done():
                change.done.set_result(None)

    def _fail(self, batch: Sequence[Change], error: StorageError) -> None:
        lost = [*batch, *self._batch]
        self._batch.clear()
        self._staged.clear()
        for change in lost:
            if not change.done.done():
                change.done.set_exception(type(error)(str(error)))
                change.done.exception()  # the writer may have been cancelled meanwhile
