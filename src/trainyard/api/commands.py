"""What commands are written on: a client for as long as one takes, in the caller's shell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from trainyard.api.async_client import AsyncClient
from trainyard.api.clusters import Choice
from trainyard.client.cluster_target import Where as Where
from trainyard.client.cluster_target import first_of
from trainyard.client.job_lookup import together as together

T = TypeVar("T")


def ask(
    where: Where, action: Callable[[AsyncClient], Awaitable[T]], cluster: Choice = "running"
) -> T:
    """The result of `action`, which gets a client of the place that the user named.

    Its jobs run the Python of the caller's shell. With `cluster` as `any` it may never connect.
    """

    async def act() -> T:
        client = AsyncClient.in_shell(where, cluster)
        try:
            if cluster == "running":
                await client.target()
            return await action(client)
        finally:
            await client.close()

    try:
        return asyncio.run(act())
    except BaseExceptionGroup as errors:
        raise first_of(errors) from errors
