"""The client for those who do not await: the same actions as `AsyncClient`, in calls that wait."""

from __future__ import annotations

import os
import queue
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack, overload

from trainyard.api.aio import AsyncClient, JobName, LogLine
from trainyard.api.clusters import Choice
from trainyard.api.manifests import Manifest
from trainyard.api.portal import Portal, Relay
from trainyard.api.running import RunOptions
from trainyard.api.screens import PlainScreen
from trainyard.client.follower import Screen
from trainyard.client.job import Job

T = TypeVar("T")


class Client:
    """Jobs of one cluster, as `AsyncClient` has them, in calls that wait for their results.

    They may be made in any thread, and where an event loop runs, as in a notebook; Ctrl-C ends
    them. `close()`, or the end of a `with`, ends the connection.
    """

    def __init__(
        self,
        *,
        namespace: str | None = None,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
        cluster: Choice = "any",
    ) -> None:
        self._client = AsyncClient(
            namespace=namespace, kubeconfig=kubeconfig, context=context, cluster=cluster
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

    def submit(
        self, manifest: Manifest | Iterable[Manifest], *, replace: bool = False
    ) -> list[Job]:
        return self._call(self._client.submit(manifest, replace=replace))

    def delete(self, jobs: JobName | Iterable[JobName], *, missing_ok: bool = False) -> list[Job]:
        return self._call(self._client.delete(jobs, missing_ok=missing_ok))

    def wait_until_gone(self, jobs: Job | Iterable[Job], *, timeout: float | None = 300.0) -> None:
        return self._call(self._client.wait_until_gone(jobs, timeout=timeout))

    def wait(self, job: JobName, until: str = "end", *, timeout: float | None = None) -> Job:
        return self._call(self._client.wait(job, until, timeout=timeout))

    def logs(self, job: JobName, **wanted: Any) -> Iterator[LogLine]:
        return self._portal.iterate(self._client.logs(job, **wanted))

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
        *,
        keep: bool = False,
        screen: Screen | None = None,
    ) -> list[Job]: ...

    def run(self, what: Any, *args: Any, screen: Screen | None = None, **options: Any) -> Any:
        relay = Relay(screen or PlainScreen(names_jobs=False))
        return self._portal.call(
            self._client.run(what, *args, screen=relay, **options), relay.steps
        )


@overload
def run(
    what: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    screen: Screen | None = None,
    **options: Unpack[RunOptions],
) -> T: ...


@overload
def run(what: Manifest | Iterable[Manifest], *, screen: Screen | None = None) -> list[Job]: ...


def run(what: Any, *args: Any, **options: Any) -> Any:
    """As `Client.run`, on the embedded cluster that is up, or else on one for this call alone."""
    with Client() as client:
        return client.run(what, *args, **options)


def _close(portal: Portal, client: AsyncClient) -> None:
    if portal.is_used:
        portal.call(client.close(), queue.SimpleQueue())
        portal.close()
