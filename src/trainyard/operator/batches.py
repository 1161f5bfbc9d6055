"""Writes that go together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from trainyard.lifecycle.actions import Action, Create


def batches(actions: Sequence[Action], first: int, most: int) -> Iterator[Sequence[Action]]:
    """A few, then twice as many, up to `most` at once."""
    start, size = 0, first
    while start < len(actions):
        yield actions[start : start + size]
        start += size
        size = min(size * 2, most)


async def build(actions: list[Action], first: int) -> None:
    """Have the first ones' manifests built, in time that would else go by waiting: what was begun
    before is sent first. One that cannot be built stays as it is, for whoever carries it out."""
    await asyncio.sleep(0)
    for place, action in enumerate(actions[:first]):
        if isinstance(action, Create):
            actions[place] = action.built()


async def gather(writes: Sequence[Coroutine[Any, Any, bool]]) -> list[bool]:
    """All of them; the first error is raised once every one has ended."""
    if len(writes) == 1:
        return [await writes[0]]
    # No TaskGroup: a write that was cut off because another failed would leave its result unknown,
    # and those of a pass that is cut off would end in any order.
    results = await asyncio.gather(*writes, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result is True for result in results]
