"""The node's side of logs, exec, attach, port-forward and metrics, as the API server calls it.

The node agent implements it; the API server and the composition of the cluster only see this.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from trainyard.podruntime.log_reader import LogOptions
from trainyard.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """Bytes that a command in a container wrote: `stream` is 1 for stdout, 2 for stderr."""

    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """What is used: cores, and bytes. ``gpu`` is how many GPUs' worth of work its GPUs do.

    None where there are no GPUs, or nothing tells of them.
    """

    cpu: float
    memory: int
    gpu: float | None = None
    gpu_memory: int | None = None


@dataclass(frozen=True, slots=True)
class UsageSample:
    """What is used at a time (Unix seconds), of CPU on average over the seconds before it."""

    at: float
    window_seconds: float
    node: ResourceUsage
    containers: Mapping[str, Mapping[str, ResourceUsage]]
    """Of those that run: by the UID of their pod, and by name."""


class ExecSession(Protocol):
    """A command running in a container."""

    def output(self) -> AsyncIterator[OutputChunk]:
        """What it writes, until it has ended and everything is read."""

    async def write(self, data: bytes) -> None:
        """Feed its standard input; returns when the pipe has room again."""

    async def close_stdin(self) -> None:
        """Let it read end-of-file. Does nothing when it has no standard input."""

    async def resize(self, columns: int, rows: int) -> None:
        """Tell its terminal the new size. Does nothing without a terminal."""

    async def wait(self) -> int:
        """Its exit code; 128 + n after signal n."""

    async def close(self) -> None:
        """End it if it still runs, and free everything. May be called twice."""


class PodConnection(Protocol):
    """A TCP connection to a port inside a pod."""

    async def read(self, limit: int) -> bytes:
        """Up to `limit` bytes; empty at the end of the stream."""

    async def write(self, data: bytes) -> None:
        """Send, and wait until there is room again."""

    async def write_eof(self) -> None:
        """Half-close: the pod reads end-of-file."""

    async def close(self) -> None:
        """Free the connection. May be called twice."""


class KubeletApi(Protocol):
    """The node side of logs, exec and port-forward. Pods are plain dicts, not to be mutated.

    Every method raises a `TrainyardError` with a text for the user when it cannot be done (no
    such container run yet, nothing listens on the port).
    """

    def logs(
        self, pod: dict[str, Any], container: str, options: LogOptions, *, previous: bool = False
    ) -> AsyncIterator[bytes]:
        """Chunks of the log; when followed, until the container has ended."""

    async def exec(
        self,
        pod: dict[str, Any],
        container: str,
        command: Sequence[str],
        *,
        stdin: bool = False,
        tty: bool = False,
    ) -> ExecSession:
        """Start `command` in the running container."""

    async def attach(
        self, pod: dict[str, Any], container: str, *, stdin: bool = False
    ) -> ExecSession:
        """The streams of the running container itself; they end with it, and its code is 0."""

    async def connect(self, pod: dict[str, Any], port: int) -> PodConnection:
        """Open a TCP connection to `port` on the pod's own address."""

    async def measure(self) -> UsageSample:
        """What the containers that run use. Looks when it is asked, and may take a second."""
