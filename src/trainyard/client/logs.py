"""Logs of a job's replicas: what is wanted of them, read once or followed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass

from trainyard.client.job import Job
from trainyard.client.jobs import pods_of
from trainyard.client.pods import PodView, in_order
from trainyard.client.watching import follow, watch_pods
from trainyard.kube.client import Client, LogOptions
from trainyard.kube.errors import KubeError, NotFound, StreamError

_RETRY_SECONDS = 0.2
_TRIES = 10
_DRAIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class LogRequest(LogOptions):
    """What is wanted of the logs."""

    replica: str = ""
    container: str = ""

    @property
    def is_resumable(self) -> bool:
        """Whether a stream that broke off can be taken up: it begins at the same place again."""
        return not self.previous and self.tail is None and self.since_seconds is None


class Lines:
    """Cuts bytes into whole lines, so that those of several replicas never mix."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """The lines that are whole by now, with their ends."""
        whole, newline, self._rest = (self._rest + chunk).rpartition(b"\n")
        return whole + newline

    def end(self) -> bytes:
        """The log is over; an unfinished last line is finished."""
        rest, self._rest = self._rest, b""
        return rest + b"\n" if rest else b""


async def whole_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The same bytes cut into whole lines."""
    lines = Lines()
    async for chunk in chunks:
        if whole := lines.feed(chunk):
            yield whole
    if rest := lines.end():
        yield rest


def texts(lines: bytes) -> list[str]:
    """Whole lines as a terminal would show them: what a carriage return overwrote is gone."""
    return [
        line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
        for line in lines.split(b"\n")[:-1]
    ]


def shown_container(job: Job, pod: PodView, request: LogRequest) -> str:
    """The container that is meant: of a pod that never got so far, the init container at fault."""
    return request.container or pod.failed_init_container or job.training_container(pod)


async def read(
    client: Client, pod: PodView, container: str, request: LogRequest
) -> AsyncGenerator[bytes]:
    """One container's log to its end, whole lines at a time."""
    async with contextlib.aclosing(
        client.logs(pod.name, pod.namespace, container, request)
    ) as chunks:
        async for lines in whole_lines(chunks):
            yield lines


Tell = Callable[[PodView, str, bytes], None]
"""Takes whole lines of a pod's container."""


class LogFollower:
    """Streams the logs of containers to their ends, each once; broken streams are taken up."""

    def __init__(
        self, client: Client, request: LogRequest, tell: Tell, fail: Callable[[KubeError], None]
    ) -> None:
        """`fail` is told why a log cannot be read; that of a deleted pod is simply over."""
        self._client = client
        self._request = request
        self._tell = tell
        self._fail = fail
        self._streams: dict[tuple[str, str], asyncio.Task[None]] = {}

    def begin(self, group: asyncio.TaskGroup, pod: PodView, containers: Iterable[str]) -> None:
        """Stream those of a pod's containers that have started by now."""
        for name in containers:
            key = (pod.uid, name)
            if key not in self._streams and pod.has_started(name):
                self._streams[key] = group.create_task(self._stream(pod, name))

    async def drain(self, seconds: float) -> None:
        """Let the logs reach their end: containers may have written more than was read."""
        if self._streams:
            await asyncio.wait(self._streams.values(), timeout=seconds)
        self.stop()

    def stop(self) -> None:
        """Read no further."""
        for stream in self._streams.values():
            stream.cancel()

    async def _stream(self, pod: PodView, container: str) -> None:
        lines, seen = Lines(), 0
        for tries_left in reversed(range(_TRIES)):
            skip = seen
            try:
                chunks = self._client.logs(pod.name, pod.namespace, container, self._request)
                async with contextlib.aclosing(chunks) as stream:
                    async for chunk in stream:
                        fresh, skip = chunk[skip:], max(skip - len(chunk), 0)
                        seen += len(fresh)
                        if whole := lines.feed(fresh):
                            self._tell(pod, container, whole)
                break
            except NotFound:
                break  # the pod was deleted
            except KubeError as error:
                if not (tries_left and self._request.is_resumable):
                    if not isinstance(error, StreamError):
                        self._fail(error)
                    break
                await asyncio.sleep(_RETRY_SECONDS)
        if rest := lines.end():
            self._tell(pod, container, rest)


async def follow_logs(
    client: Client, job: Job, request: LogRequest, tell: Tell, fail: Callable[[KubeError], None]
) -> None:
    """The logs of every pod of a job, also those to come, until it is over and all is told."""
    logs = LogFollower(client, request, tell, fail)

    def begin(group: asyncio.TaskGroup, pods: Sequence[PodView]) -> None:
        for pod in in_order(pods):
            if request.replica in ("", pod.name, job.replica_of(pod.name)):
                logs.begin(group, pod, [request.container or job.training_container(pod)])

    async def begin_all(group: asyncio.TaskGroup) -> None:
        async with contextlib.aclosing(watch_pods(client, job)) as states:
            async for state in states:
                begin(group, [PodView(pod) for pod in state.changed])

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(begin_all(group))
        try:
            await _until_over(client, job)
            # Pods that ended with the job may be known to the job before they are to us.
            begin(group, await pods_of(client, job))
        finally:
            watching.cancel()
        # A replica that goes on after the job has ended is not waited for.
        await logs.drain(_DRAIN_SECONDS)


async def _until_over(client: Client, job: Job) -> None:
    async with contextlib.aclosing(follow(client, job)) as states:
        async for state in states:
            if state is None or state.is_over:
                return
