"""The delayed work queue, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.simulation.virtual_time import run
from trainyard.operator.reconcile.work_queue import WorkQueue

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class Clock:
    """A wall clock beside the loop's own time, which can be set."""

    offset = 0.0

    def __call__(self) -> datetime:
        return EPOCH + timedelta(seconds=asyncio.get_running_loop().time() + self.offset)


Body = Callable[[WorkQueue[str], Clock], Coroutine[Any, Any, None]]


def with_queue(body: Body) -> None:
    """Run `body` with a queue whose timer runs."""

    async def main() -> None:
        clock = Clock()
        queue: WorkQueue[str] = WorkQueue(
            clock, clock_offset=lambda: clock.offset, retry_min_seconds=1.0, retry_max_seconds=60.0
        )
        timer = asyncio.create_task(queue.run())
        await body(queue, clock)
        timer.cancel()

    run(main())


async def due(queue: WorkQueue[str], *, rest: float = 0.0) -> tuple[str, float]:
    """The next key, done at once, and when it came."""
    async with asyncio.timeout(100_000):
        key = await queue.get()
    queue.done(key, rest_seconds=rest)
    return key, round(asyncio.get_running_loop().time(), 3)


def test_a_key_added_many_times_gets_one_pass() -> None:
    async def body(queue: WorkQueue[str], clock: Clock) -> None:
        for _ in range(3):
            queue.add("a")
        assert await due(queue) == ("a", 0.0)
        assert len(queue) == 0

    with_queue(body)


def test_a_key_added_during_its_pass_gets_another_one_afterwards() -> None:
    async def body(queue: WorkQueue[str], clock: Clock) -> None:
        queue.add("a")
        key = await queue.get()
        queue.add("a")
        assert len(queue) == 0
        queue.done(key)
        assert await due(queue) == ("a", 0.0)

    with_queue(body)


def test_changes_during_the_rest_after_a_pass_wait_for_its_end() -> None:
    async def body(queue: WorkQueue[str], clock: Clock) -> None:
        queue.add("a")
        await due(queue, rest=2.0)
        queue.add("a")
        queue.add("b")
        assert await due(queue) == ("b", 0.0)
        assert await due(queue) == ("a", 2.0)

    with_queue(body)


def test_the_delay_of_retries_doubles_until_a_success() -> None:
    async def body(queue: WorkQueue[str], clock: Clock) -> None:
        delays = [queue.retry("a") for _ in range(8)]
        assert delays == [1, 2, 4, 8, 16, 32, 60, 60]
        queue.reset_backoff("a")
        assert queue.retry("a") == 1

    with_queue(body)


def test_a_wake_up_fires_at_its_moment() -> None:
    async def body(queue: WorkQueue[str], clock: Clock) -> None:
        queue.set_wakeup("a", EPOCH + timedelta(seconds=7200))
        queue.set_wakeup("b", EPOCH + timedelta(seconds=0.25))
        assert await due(queue) == ("b", 0.25)
        assert await due(queue) == ("a", 7200.0)

    with_queue(body)


def test_a_later_wake_up_replaces_the_earlier_one() -> None:
    async def body(queue: WorkQueue[str], clock: Clock) -> None:
        queue.set_wakeup("a", EPOCH + timedelta(seconds=5))
        queue.set_wakeup("a", EPOCH + timedelta(seconds=9))
        queue.set_wakeup("b", EPOCH + timedelta(seconds=3))
        queue.set_wakeup("b", None)
        assert await due(queue) == ("a", 9.0)
        assert len(queue) == 0

    with_queue(body)


@pytest.mark.parametrize("seconds", [-3600.0, 1800.0])
def test_all_keys_with_wake_ups_are_reconciled_when_the_clock_was_set(seconds: float) -> None:
    async def body(queue: WorkQueue[str], clock: Clock) -> None:
        queue.set_wakeup("a", EPOCH + timedelta(seconds=3600))
        queue.set_wakeup("b", EPOCH + timedelta(seconds=7200))
        await asyncio.sleep(100)
        clock.offset = seconds
        assert {(await due(queue))[0] for _ in range(2)} == {"a", "b"}
        assert asyncio.get_running_loop().time() <= 106

    with_queue(body)


def test_a_wake_up_follows_the_wall_clock_when_that_is_set() -> None:
    async def body(queue: WorkQueue[str], clock: Clock) -> None:
        queue.set_wakeup("a", EPOCH + timedelta(seconds=3600))
        await asyncio.sleep(1)
        clock.offset = 4000
        _, when = await due(queue)
        assert when <= 10.0

    with_queue(body)


def test_a_wake_up_in_the_past_fires_at_once() -> None:
    async def body(queue: WorkQueue[str], clock: Clock) -> None:
        queue.set_wakeup("a", EPOCH - timedelta(seconds=60))
        assert await due(queue) == ("a", 0.0)

    with_queue(body)


def test_nothing_delayed_is_left_of_a_forgotten_key() -> None:
    async def body(queue: WorkQueue[str], clock: Clock) -> None:
        queue.set_wakeup("a", EPOCH + timedelta(seconds=5))
        queue.retry("a")
        queue.forget("a")
        queue.set_wakeup("b", EPOCH + timedelta(seconds=50))
        assert await due(queue) == ("b", 50.0)

    with_queue(body)


def test_far_wake_ups_of_forgotten_keys_do_not_pile_up() -> None:
    async def body(queue: WorkQueue[str], clock: Clock) -> None:
        queue.set_wakeup("kept", EPOCH + timedelta(seconds=5))
        for number in range(20_000):
            queue.set_wakeup(f"job-{number}", EPOCH + timedelta(days=30))
            queue.forget(f"job-{number}")
        assert len(queue._wakeups) <= 1100
        assert await due(queue) == ("kept", 5.0)

    with_queue(body)


def test_a_key_forgotten_during_its_pass_is_dropped_after_it_unless_it_came_back() -> None:
    async def body(queue: WorkQueue[str], clock: Clock) -> None:
        for key, comes_back in (("a", False), ("b", True)):
            queue.add(key)
            await queue.get()
            queue.set_wakeup(key, EPOCH + timedelta(seconds=5))
            queue.forget(key)
            if comes_back:
                queue.add(key)
            queue.done(key)
        assert await due(queue) == ("b", 0.0)
        assert list(queue._entries) == ["b"]

    with_queue(body)


def test_a_wake_up_does_not_wait_for_the_end_of_a_rest() -> None:
    async def body(queue: WorkQueue[str], clock: Clock) -> None:
        queue.add("a")
        await due(queue, rest=60.0)
        queue.add("a")
        queue.set_wakeup("a", EPOCH + timedelta(seconds=5))
        assert await due(queue) == ("a", 5.0)

    with_queue(body)


def test_keys_are_worked_on_in_parallel_but_each_by_one_worker() -> None:
    async def body(queue: WorkQueue[str], clock: Clock) -> None:
        active: list[str] = []
        most = 0

        async def work() -> None:
            nonlocal most
            while True:
                key = await queue.get()
                assert key not in active
                active.append(key)
                most = max(most, len(active))
                await asyncio.sleep(1)
                active.remove(key)
                queue.done(key)

        workers = [asyncio.create_task(work()) for _ in range(4)]
        for _ in range(20):
            for key in "abcd":
                queue.add(key)
            await asyncio.sleep(0.3)
        assert most == 4
        for worker in workers:
            worker.cancel()

    with_queue(body)
