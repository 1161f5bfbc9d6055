"""Writes that go together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

from trainyard.lifecycle.actions import Action

T = TypeVar("T")
P = ParamSpec("P")
Write = Coroutine[Any, Any, T]


def batches(actions: Sequence[Action], first: int, most: int) -> Iterator[Sequence[Action]]:
    """A few, then twice as many, up to `most` at once."""
    start, size = 0, first
    while start < len(actions):
        yield actions[start : start + size]
        start += size
        size = min(size * 2, most)


async def gather(do: Callable[[Action], Write[bool]], actions: Sequence[Action]) -> list[bool]:
    """Do all of them; the first error is raised once every one has ended."""
    first, *others = actions
    if not others:
        return [await do(first)]
    # No TaskGroup: a write that was cut off because another failed would leave its result unknown,
    # and those of a pass that is cut off would end in any order.
    later = (behind(do, action) for action in others)
    results = await asyncio.gather(do(first), *later, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result is True for result in results]


async def behind(do: Callable[P, Write[T]], *args: P.args, **named: P.kwargs) -> T:
    """Begin it one turn of the loop later, and so behind what begins now.

    uvloop sends what was written in a turn when that is over: the first of eight pods would wait
    until all were built (decision 310).
    """
    await asyncio.sleep(0)
    return await do(*args, **named)
