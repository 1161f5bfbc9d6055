"""The interface between the node agent and what runs containers (PodRuntimeClient)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Protocol

from trainyard.embedded.node.runtime_folder import RuntimeFolder
from trainyard.podruntime import protocol
from trainyard.podruntime.protocol import Attach
from trainyard.schema.errors import TrainyardError


class RuntimeRefused(TrainyardError):
    """The runtime refused a request, or is gone."""


class ContainerRuntime(Protocol):
    """Pods and containers, by the messages of ``trainyard.podruntime.protocol``."""

    @property
    def hello(self) -> protocol.Hello:
        """How pods are isolated here, and the pods that an earlier agent left."""
        ...

    @property
    def runtime_folder(self) -> RuntimeFolder:
        """For files that are mounted into pods and need not outlive the runtime."""
        ...

    @property
    def events(self) -> asyncio.Queue[protocol.ContainerState | None]:
        """Containers that have started or ended; None when the runtime is gone."""
        ...

    async def request(
        self, request: protocol.Request, attach: Sequence[int] = ()
    ) -> protocol.Answer:
        """Send a request with descriptors, which the caller still owns; raises RuntimeRefused."""
        ...

    async def attach(self, wanted: Attach, output: int) -> int:
        """Attach to a container; raises RuntimeRefused. ``output`` stays ours.

        The end to write to its input; -1 if there is none.
        """
        ...

    async def open_socket(self, pod: str) -> socket.socket:
        """A TCP socket, not connected yet, inside the pod's network."""
        ...

    async def open_listener(self, port: int) -> socket.socket:
        """A TCP socket that listens where all pods reach it; 0: any port that is free."""
        ...

    def session(self, name: str) -> asyncio.Future[int]:
        """A future for the exit code of a command; call it before the ``Exec`` request."""
        ...

    def forget_session(self, name: str) -> None:
        """Drop the future of a command that was not started."""
        ...

    def close(self) -> None:
        """Disconnect. Whether the pods live on was decided when the runtime was started."""
        ...
