"""Runs both directions of a connection until one of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def until_one_ends(*directions: Coroutine[Any, Any, None]) -> None:
    """Run coroutines at the same time; when one ends or fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in directions]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
