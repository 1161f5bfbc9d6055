"""NodePort Services: what connects to this machine at 127.0.0.1 reaches a pod behind.

The one way into the pods' network from outside, so it is kept to loopback. TCP only (decision 64).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any

from trainyard.local.node.services import behind, target_port
from trainyard.local.objects import Objects
from trainyard.local.resources.services import NODE_PORT_HOST, ON_NODE_PORTS
from trainyard.local.runtime import Connection, PodRuntime
from trainyard.schema.errors import TrainyardError

_CHUNK = 64 << 10
_LISTEN_SECONDS = 2.0
_CONNECT_SECONDS = 10.0
_CONNECT_RETRY_SECONDS = 0.05

_log = logging.getLogger(__name__)
Object = dict[str, Any]
Warn = Callable[[Object, str, str], None]


class NodePorts:
    """Listens for the NodePort Services that it is told of. ``warn(service, reason, text)``."""

    def __init__(self, objects: Objects, runtime: PodRuntime, warn: Warn) -> None:
        self._objects = objects
        self._runtime = runtime
        self._warn = warn
        self._listening: dict[str, dict[int, asyncio.Task[None]]] = {}

    def changed(self, kind: str, service: Object) -> None:
        """A Service was added, changed or, with ``kind`` DELETED, deleted."""
        uid = service["metadata"]["uid"]
        wanted = {} if kind == "DELETED" else dict(_node_ports(service))
        present = self._listening.setdefault(uid, {})
        for number in present.keys() - wanted.keys():
            present.pop(number).cancel()
        for number in wanted.keys() - present.keys():
            present[number] = asyncio.create_task(self._listen(service, number))
        if not present:
            del self._listening[uid]

    async def close(self) -> None:
        """Stop listening and end every connection."""
        tasks = [task for ports in self._listening.values() for task in ports.values()]
        self._listening.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, service: Object, number: int) -> None:
        metadata = service["metadata"]
        turn, ended = itertools.count(), False
        async with asyncio.TaskGroup() as group:

            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                if ended:  # accepted just before
                    writer.close()
                    return
                work = self._serve(metadata, number, next(turn), reader, writer)
                # Even where the task is cancelled before it has begun.
                group.create_task(work).add_done_callback(lambda _: writer.close())

            server = await self._open(service, number, accept)
            try:
                await asyncio.get_running_loop().create_future()  # until cancelled
            finally:
                ended = True
                server.close()

    async def _open(self, service: Object, number: int, accept: Any) -> asyncio.Server:
        """The listener; while something else has the port, that is told, and tried again."""
        warned = False
        while True:
            try:
                return await asyncio.start_server(accept, NODE_PORT_HOST, number)
            except OSError as error:
                if not warned:
                    name = service["metadata"]["name"]
                    where = f"{NODE_PORT_HOST}:{number}"
                    text = f"Service {name}: cannot listen on {where}: {error.strerror}"
                    self._warn(service, "NotHonoured", text)
                    warned = True
            await asyncio.sleep(_LISTEN_SECONDS)

    async def _serve(
        self,
        metadata: Object,
        number: int,
        turn: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            pod = await self._connect(metadata["namespace"], metadata["name"], number, turn)
            try:
                await _pump(reader, writer, pod)
            finally:
                await pod.close()
        except (TrainyardError, OSError) as error:
            _log.debug("port %d: %s", number, error)
            writer.transport.abort()

    async def _connect(self, namespace: str, name: str, number: int, turn: int) -> Connection:
        """To one of the Service's pods; to a pod that does not listen yet, a little later."""
        until = asyncio.get_running_loop().time() + _CONNECT_SECONDS
        while True:
            service = self._objects.get("services", namespace, name)
            pods = behind(service, self._objects.list("pods", namespace))
            try:
                if not pods:
                    raise TrainyardError(f"no pod is ready behind Service {name}")
                pod = pods[turn % len(pods)]
                return await self._runtime.connect(pod, _target(service, number, pod))
            except TrainyardError:
                if asyncio.get_running_loop().time() > until:
                    raise
            await asyncio.sleep(_CONNECT_RETRY_SECONDS)


def _node_ports(service: Object) -> Iterator[tuple[int, int | str]]:
    spec = service["spec"]
    if spec.get("type") in ON_NODE_PORTS:
        for port in spec.get("ports", ()):
            if port.get("nodePort") and port.get("protocol", "TCP") == "TCP":
                yield port["nodePort"], port.get("targetPort") or port["port"]


def _target(service: Object, number: int, pod: Object) -> int:
    return target_port(pod, dict(_node_ports(service)).get(number, 0))


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pod: Connection
) -> None:
    """Move bytes both ways until both sides have ended."""

    async def upstream() -> None:
        while data := await reader.read(_CHUNK):
            await pod.write(data)
        await pod.write_eof()

    async def downstream() -> None:
        while data := await pod.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(upstream())
            group.create_task(downstream())
    except* OSError as broken:
        raise broken.exceptions[0] from None
