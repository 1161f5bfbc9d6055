"""Ports of this machine that lead to pods behind NodePort Services.

They are the one way into the pods' network from outside, so they listen on loopback only, for users
whom `nodeport_access` lets in. TCP only (decision 64).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainyard.embedded.cluster_objects import Objects
from trainyard.embedded.kubelet_api import KubeletApi, PodConnection
from trainyard.embedded.node.network import nodeport_access
from trainyard.embedded.resources.served.services_resource import NODE_PORT_HOST, ON_NODE_PORTS
from trainyard.embedded.service_endpoints import (
    route_targets,
)
from trainyard.embedded.tenants import tenant_of
from trainyard.kube.errors import NotFound
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError

_CHUNK = 64 << 10
_MOST_ALIASES = 8
"""From one ExternalName to the next."""
_LISTEN_SECONDS = 2.0
_CONNECT_SECONDS = 10.0
_CONNECT_RETRY_SECONDS = 0.05
_log = logging.getLogger(__name__)
Object = dict[str, Any]
Warn = Callable[[Object, str, str], None]


class NodePorts:
    """Listeners for NodePort Services. ``warn(service, reason, text)`` reports a taken port."""

    def __init__(self, objects: Objects, runtime: KubeletApi, warn: Warn) -> None:
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
            port = _NodePort(self._objects, self._runtime, service, number)
            present[number] = asyncio.create_task(port.listen(self._warn))
        if not present:
            del self._listening[uid]

    async def close(self) -> None:
        """Stop listening and end every connection."""
        tasks = [task for ports in self._listening.values() for task in ports.values()]
        self._listening.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class _NodePort:
    """One port of a Service on this machine."""

    objects: Objects
    runtime: KubeletApi
    service: Object
    number: int

    async def listen(self, warn: Warn) -> None:
        turn, ended = itertools.count(), False
        async with asyncio.TaskGroup() as group:

            def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                if ended:  # accepted just before
                    writer.close()
                    return
                work = self._serve(next(turn), reader, writer)
                # Even where the task is cancelled before it has begun.
                group.create_task(work).add_done_callback(lambda _: writer.close())

            server = await self._open(accept, warn)
            try:
                await asyncio.get_running_loop().create_future()  # until cancelled
            finally:
                ended = True
                server.close()

    async def _open(self, accept: Any, warn: Warn) -> asyncio.Server:
        """The listener; a port that is taken is reported once and tried again."""
        warned = False
        while True:
            try:
                return await asyncio.start_server(accept, NODE_PORT_HOST, self.number)
            except OSError as error:
                if not warned:
                    where = f"{NODE_PORT_HOST}:{self.number}: {error.strerror}"
                    name = self.service["metadata"]["name"]
                    text = f"Service {name}: cannot listen on {where}"
                    warn(self.service, "NotHonoured", text)
                    warned = True
            await asyncio.sleep(_LISTEN_SECONDS)

    async def _serve(
        self, turn: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            if not await nodeport_access.is_allowed_user(
                self._users(), writer.get_extra_info("socket")
            ):
                writer.transport.abort()
                return
            pod = await self._connect(turn)
            try:
                await _pump(reader, writer, pod)
            finally:
                await pod.close()
        except (TrainyardError, OSError) as error:
            _log.debug("port %d: %s", self.number, error)
            writer.transport.abort()

    def _users(self) -> list[int]:
        """User ids that may connect besides the cluster's owner: that of the namespace's tenant."""
        tenant = tenant_of(self.objects, self.service["metadata"]["namespace"])
        return [] if tenant is None else [tenant.uid]

    async def _connect(self, turn: int) -> PodConnection:
        """Connect to one of the Service's pods; retries while none listens yet."""
        until = asyncio.get_running_loop().time() + _CONNECT_SECONDS
        metadata = self.service["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        while True:
            service = self.objects.get("services", namespace, name)
            port = dict(_node_ports(service)).get(self.number)
            found = self._behind(service, port) if port else []
            try:
                if not found:
                    raise TrainyardError(f"no pod is ready behind Service {name}")
                pod, number = found[turn % len(found)]
                return await self.runtime.connect(dict(pod), number)
            except TrainyardError:
                if asyncio.get_running_loop().time() > until:
                    raise
            await asyncio.sleep(_CONNECT_RETRY_SECONDS)

    def _behind(self, service: Object, port: Object) -> list[tuple[Mapping[str, Any], int]]:
        namespace, endpoints = service["metadata"]["namespace"], {}
        with contextlib.suppress(NotFound):
            endpoints = self.objects.get("endpoints", namespace, service["metadata"]["name"])
        return route_targets(service, port, self.objects.list("pods", namespace), endpoints)


def _node_ports(service: Object) -> Iterator[tuple[int, Object]]:
    spec = service["spec"]
    if spec.get("type") in ON_NODE_PORTS:
        for port in spec.get("ports", ()):
            if port.get("nodePort") and port.get("protocol", "TCP") == "TCP":
                yield port["nodePort"], port


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pod: PodConnection
) -> None:
    """Move bytes both ways until both sides have ended."""

    async def upstream() -> None:
        data = await nodeport_access.read_opening(reader)
        while data:
            await pod.write(data)
            data = await reader.read(_CHUNK)
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
    except* nodeport_access.PageRefused as refused:
        writer.write(refused.exceptions[0].answer)  # type: ignore[union-attr]
    except* OSError as broken:
        raise broken.exceptions[0] from None
