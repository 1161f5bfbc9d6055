"""An asyncio loop whose clock jumps to the next timer: hours pass in milliseconds, the same way
each time. There are no sockets, threads or signals in it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class StuckError(Exception):
    """Everything waits, and nothing is left that could end the waiting."""


class _Selector:
    """Where a real loop would wait for input, time passes."""

    def __init__(self) -> None:
        self.now = 0.0

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise StuckError("nothing is scheduled any more")
        self.now += timeout
        return []

    def close(self) -> None:
        """Nothing to close."""


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop in virtual time, which starts at 0."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Selector()
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._selector.now

    def _process_events(self, event_list: list[object]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody outside could wake the loop."""


@contextlib.contextmanager
def virtual_loop() -> Iterator[VirtualLoop]:
    """A new loop, closed at the end together with everything that still runs in it."""
    loop = VirtualLoop()
    try:
        yield loop
    finally:
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in a new virtual loop."""
    with virtual_loop() as loop:
        return loop.run_until_complete(main)
