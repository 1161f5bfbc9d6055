"""Keeps the cluster's loops and services running, and remembers what fails.

A loop takes its objects one by one through a `RetryGuard`: a step that fails holds up no other.
A failure is logged once with its traceback, becomes a Warning event about the object, is listed by
`trainyard doctor` while it lasts, and is tried again with a growing delay. A service that ends with
a defect is restarted the same way (decision 81).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Generic, NamedTuple, TypeVar

from trainyard.embedded.storage.journal import Event, Subscription
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError

log = logging.getLogger(__name__)

T = TypeVar("T")
Object = Mapping[str, Any]
SERVICE = "service of the cluster"
_FIRST_SECONDS, _MOST_SECONDS = 1.0, 300.0
_HEALTHY_SECONDS = 600.0
"""A service that has run for so long starts with the shortest delay again."""


class FatalError(TrainyardError):
    """An error without which the cluster cannot go on: its process ends and says why."""


class Subject(NamedTuple):
    """The object that a failure is about; for a whole service `SERVICE` and its name."""

    kind: str
    namespace: str
    name: str

    @classmethod
    def from_object(cls, obj: Object) -> Subject:
        """The subject for a stored object."""
        metadata = obj["metadata"]
        return cls(obj.get("kind", ""), metadata.get("namespace", ""), metadata["name"])

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.namespace}/{self.name}" if self.namespace else " ".join(self[::2])
        )


@dataclass(slots=True)
class StepFailure:
    """A step that fails at present."""

    loop: str
    about: Subject
    problem: str
    since: float
    """Unix seconds."""
    count: int = 1

    def as_json(self) -> dict[str, Any]:
        """As JSON."""
        rest = {"problem": self.problem, "since": self.since, "count": self.count}
        return {"loop": self.loop, **self.about._asdict(), **rest}


@dataclass(slots=True)
class Supervisor:
    """Everything that fails at present in one cluster.

    `warn(object, reason, message)` writes an event about a new failure.
    """

    warn: Callable[[Object, str, str], None] | None = None
    facts: dict[str, str] = field(default_factory=dict)
    """Facts about the cluster that `trainyard doctor` shows."""
    _failing: dict[tuple[str, Subject], StepFailure] = field(default_factory=dict)

    def __iter__(self) -> Iterator[StepFailure]:
        return iter(tuple(self._failing.values()))

    def record_failure(
        self, loop: str, about: Subject, error: Exception, obj: Object | None = None
    ) -> StepFailure:
        """Record a failure; logged when it is new, and whenever its count has doubled."""
        problem = f"{type(error).__name__}: {error}"
        found = self._failing.get((loop, about))
        if found is not None and found.problem == problem:
            found.count += 1
            if found.count & (found.count - 1) == 0:
                log.warning("%s: %s: failed %d times: %s", loop, about, found.count, problem)
            return found
        found = self._failing[loop, about] = StepFailure(loop, about, problem, time.time())
        expected = isinstance(error, TrainyardError)
        log.error("%s: %s: %s", loop, about, problem, exc_info=None if expected else error)
        if obj is not None and self.warn is not None:
            self.warn(obj, "ClusterFault", f"{loop}: {problem}; it is tried again")
        return found

    def record_success(self, loop: str, about: Subject) -> None:
        """The step no longer fails."""
        if self._failing:
            self._failing.pop((loop, about), None)

    def forget_object(self, obj: Object) -> None:
        """Drop the failures of a deleted object."""
        if self._failing:
            about = Subject.from_object(obj)
            for key in [key for key in self._failing if key[1] == about]:
                del self._failing[key]

    async def keep_running(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a service until it returns; one that raises is restarted with a growing delay.

        FatalError and cancellation pass through.
        """
        about = Subject(SERVICE, "", name)
        delay = _FIRST_SECONDS
        while True:
            started = time.monotonic()
            try:
                await run()
                return
            except Exception as error:
                if fatal := _find_fatal(error):
                    raise fatal from error
                self.record_failure("cluster", about, _root_cause(error))
            if time.monotonic() - started > _HEALTHY_SECONDS:
                delay = _FIRST_SECONDS
            await asyncio.sleep(delay)
            delay = min(delay * 2, _MOST_SECONDS)


def _find_fatal(error: Exception) -> FatalError | None:
    if not isinstance(error, ExceptionGroup):
        return error if isinstance(error, FatalError) else None
    return next(filter(None, map(_find_fatal, error.exceptions)), None)


def _root_cause(error: Exception) -> Exception:
    """The innermost first exception of an exception group."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


@dataclass(slots=True)
class _Retry(Generic[T]):
    work: T
    due_retries: float


class RetryGuard(Generic[T]):
    """Runs a loop's steps, one per object. `T` is the work to repeat after a failed step."""

    def __init__(self, loop: str, supervisor: Supervisor | None = None) -> None:
        self._loop = loop
        self._supervisor = supervisor if supervisor is not None else Supervisor()
        self._retries: dict[tuple[str, Subject], _Retry[T]] = {}
        self._wake_at: float | None = None

    @contextmanager
    def step(self, obj: Object, again: T, what: str = "") -> Iterator[None]:
        """A step about `obj`; a failure is recorded and `again` returned by due_retries() later.

        `what` distinguishes several steps of one loop.
        """
        key = (f"{self._loop}, {what}" if what else self._loop, Subject.from_object(obj))
        try:
            yield
        except Exception as error:
            found = self._supervisor.record_failure(*key, error, obj)
            delay = min(_FIRST_SECONDS * 2 ** min(found.count - 1, 20), _MOST_SECONDS)
            self._retries[key] = _Retry(again, time.monotonic() + delay)
        else:
            if self._retries:
                self._retries.pop(key, None)
            self._supervisor.record_success(*key)

    def due_retries(self) -> Sequence[T]:
        """Work that is due for another try; to be called after every batch."""
        if not self._retries:
            return ()
        now = time.monotonic()
        found = [about for about, again in self._retries.items() if again.due_retries <= now]
        return [self._retries.pop(about).work for about in found]

    def wake_in(self, seconds: float | None) -> None:
        """Ask for an empty batch after so many seconds; replaces an earlier request."""
        self._wake_at = None if seconds is None else time.monotonic() + seconds

    @property
    def seconds_until_due(self) -> float | None:
        """Seconds until a retry or wake-up is due; None if there is none."""
        due = [again.due_retries for again in self._retries.values()]
        if self._wake_at is not None:
            due.append(self._wake_at)
        return max(0.0, min(due) - time.monotonic()) if due else None


async def event_batches(
    subscription: Subscription, *guards: RetryGuard[Any]
) -> AsyncGenerator[list[Event]]:
    """The batches of a subscription; an empty one when a guard has something due."""
    while True:
        events: list[Event] = []
        waits = [wait for guard in guards if (wait := guard.seconds_until_due) is not None]
        try:
            async with asyncio.timeout(min(waits, default=None)):
                events = await subscription.batch()
        except TimeoutError:
            yield []
            continue
        if not events:
            return
        yield events
