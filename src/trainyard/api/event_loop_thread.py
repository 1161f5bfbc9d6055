"""An event loop in a thread of its own, so that calls that wait work wherever they are made: in
scripts, in threads, and where an event loop runs already, as in notebooks.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from trainyard.client.cluster_target import CommandError
from trainyard.client.job_follower import Screen
from trainyard.client.job_view import Job
from trainyard.client.metrics_client import Place, Used

T = TypeVar("T")
_Step = Callable[[], None]


class Portal:
    """Runs coroutines in its thread, which starts with the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def call(self, work: Coroutine[Any, Any, T], steps: queue.SimpleQueue[_Step | None]) -> T:
        """The result of a coroutine; what it puts into `steps` meanwhile is done in this thread.

        An interruption, such as Ctrl-C, cancels it and is raised once it has ended.
        """
        try:
            loop = self._running()
        except BaseException:
            work.close()
            raise
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            tasks.append(loop.create_task(work))
            tasks[0].add_done_callback(lambda _: steps.put(None))

        loop.call_soon_threadsafe(start)
        interruption: BaseException | None = None
        while True:
            try:
                while (step := steps.get()) is not None:
                    step()
                break
            except BaseException as error:
                if interruption is not None:
                    raise
                interruption = error
                loop.call_soon_threadsafe(lambda: tasks[0].cancel())
        if interruption is not None:
            raise interruption
        return tasks[0].result()

    def iterate(self, items: AsyncGenerator[T]) -> Iterator[T]:
        """The items of an asynchronous generator, which is closed with this one."""
        try:
            while True:
                found = self.call(_next(items), queue.SimpleQueue())
                if not found:
                    return
                yield from found
        finally:
            self.call(items.aclose(), queue.SimpleQueue())

    @property
    def is_used(self) -> bool:
        """Whether its thread runs, in this process."""
        return self._loop is not None and self._pid == os.getpid()

    def close(self) -> None:
        """End the thread; what still runs in it is cancelled."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():
            raise CommandError(
                "this client was made before a fork, and its connections belong to process "
                f"{self._pid}: make another in this process, trainyard.Client()"
            )
        with self._lock:
            if self._loop is None:
                ready: Future[asyncio.AbstractEventLoop] = Future()
                # Not waited for at the interpreter's exit.
                self._thread = threading.Thread(
                    target=_serve, args=(ready,), name="trainyard", daemon=True
                )
                self._thread.start()
                self._loop = ready.result()
            return self._loop


async def _next(items: AsyncGenerator[T]) -> list[T]:
    """The next item; none where there is none any more."""
    async for item in items:
        return [item]
    return []


def _serve(ready: Future[asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        ready.set_result(loop)
        loop.run_forever()


class Relay:
    """A screen whose calls are made by the thread that waits: where output belongs to a thread,
    as in a notebook, it is the one that asked."""

    def __init__(self, screen: Screen | None) -> None:
        """None: one that is chosen once it is known what it shows."""
        self.steps: queue.SimpleQueue[_Step | None] = queue.SimpleQueue()
        self.given = screen

    @property
    def _screen(self) -> Screen:
        assert self.given is not None
        return self.given

    def __enter__(self) -> Self:
        self.steps.put(lambda: _nothing(self._screen.__enter__()))
        return self

    def __exit__(self, *exception: object) -> None:
        self.steps.put(lambda: self._screen.__exit__(None, None, None))

    def job_changed(self, job: Job) -> None:
        self.steps.put(lambda: self._screen.job_changed(job))

    def log_lines(self, job: Job, source: str, lines: Sequence[str]) -> None:
        self.steps.put(lambda: self._screen.log_lines(job, source, lines))

    def line_grew(self, job: Job, source: str, text: str) -> None:
        self.steps.put(lambda: self._screen.line_grew(job, source, text))

    @property
    def is_live(self) -> bool:
        return self._screen.is_live

    def usage_changed(self, used: Mapping[Place, Used]) -> None:
        self.steps.put(lambda: self._screen.usage_changed(used))

    def warning(self, about: str, message: str) -> None:
        self.steps.put(lambda: self._screen.warning(about, message))

    def note(self, text: str) -> None:
        self.steps.put(lambda: self._screen.note(text))


def _nothing(_: object) -> None:
    return None
