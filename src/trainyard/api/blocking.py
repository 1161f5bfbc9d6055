"""What the client for those who do not await stands on: a loop of its own, and runs."""

from __future__ import annotations

import os
import queue
import weakref
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Self, TypeVar, Unpack, overload

from trainyard.api.async_client import AsyncClient
from trainyard.api.clusters import Choice, ClusterOptions
from trainyard.api.connection import Jobs
from trainyard.api.event_loop_thread import Portal, Relay
from trainyard.api.job_manifests import Manifest
from trainyard.api.options import RunOptions, ScriptOptions
from trainyard.client.job_follower import Screen

T = TypeVar("T")


class Blocking:
    """Calls that wait for an asynchronous client of their own."""

    def __init__(
        self,
        *,
        namespace: str | None = None,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
        cluster: Choice = "any",
        options: ClusterOptions | None = None,
    ) -> None:
        self._client = AsyncClient(
            namespace=namespace,
            kubeconfig=kubeconfig,
            context=context,
            cluster=cluster,
            options=options,
        )
        self._portal = Portal()
        self._end = weakref.finalize(self, _close, self._portal, self._client)

    def __enter__(self) -> Self:
        self._call(self._client.target())
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, and the cluster if it is private."""
        self._end()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._portal.call(work, queue.SimpleQueue())

    def _iterate(self, items: AsyncGenerator[T]) -> Iterator[T]:
        return self._portal.iterate(items)

    @overload
    def run(
        self,
        what: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        screen: Screen | None = None,
        **options: Unpack[RunOptions],
    ) -> T: ...

    @overload
    def run(
        self,
        what: Manifest | Iterable[Manifest],
        args: Sequence[Any] = (),
        *,
        keep: bool = False,
        snapshot: bool = False,
        screen: Screen | None = None,
        **options: Unpack[ScriptOptions],
    ) -> Jobs: ...

    def run(self, what: Any, *args: Any, screen: Screen | None = None, **options: Any) -> Any:
        """As `AsyncClient.run`; what the replicas write is shown by the thread that waits."""
        relay = Relay(screen)
        work = self._client.run(what, *args, screen=relay, **options)
        return self._portal.call(work, relay.steps)


def _close(portal: Portal, client: AsyncClient) -> None:
    if portal.is_used:
        own = portal.call(client.disconnect(), queue.SimpleQueue())
        portal.close()
        if own is not None:  # here: at the interpreter's exit no thread can be started
            own.close()
