"""Services: connections to their addresses, which the relay forwards, and to ports of the node.

What connects to this machine at 127.0.0.1 reaches a pod behind a NodePort Service: the one way into
the pods' network from outside, so it is kept to loopback and to this user. TCP only (decision 64).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from trainyard.local.guests import guest_of
from trainyard.local.node import visitors
from trainyard.local.objects import Objects
from trainyard.local.resources.services import NODE_PORT_HOST, ON_NODE_PORTS
from trainyard.local.runtime import Connection, PodRuntime
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError
from trainyard.shim.protocol import Forward

_CHUNK = 64 << 10
_LISTEN_SECONDS = 2.0
_CONNECT_SECONDS = 10.0
_CONNECT_RETRY_SECONDS = 0.05
_log = logging.getLogger(__name__)
Object = dict[str, Any]
Warn = Callable[[Object, str, str], None]
Pod = TypeVar("Pod", bound=Mapping[str, Any])


def forwards(
    services: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]], *, plain: bool
) -> list[Forward]:
    """(address, port, endpoints) for every TCP port of a Service that has an own address.

    In plain mode a Service's address does not exist: peers are given the address of its pod. A
    forward is then only needed where the port differs from the target's.
    """
    pods = [pod for pod in pods if _has_address(pod)]
    result: list[Forward] = []
    for service in services:
        spec = service["spec"]
        address = spec.get("clusterIP", "")
        if address in ("", "None") or not spec.get("selector"):
            continue
        ready = behind(service, pods)
        for port in spec.get("ports", ()):
            if port.get("protocol", "TCP") != "TCP":
                continue
            number, target = port["port"], port.get("targetPort") or port["port"]
            ends = tuple((pod["status"]["podIP"], target_port(pod, target)) for pod in ready)
            if not plain:
                result.append(Forward(address, number, ends))
            else:
                result += [Forward(host, number, ((host, p),)) for host, p in ends if p != number]
    return result


def behind(service: Mapping[str, Any], pods: Iterable[Pod]) -> list[Pod]:
    """The pods that a Service sends connections to."""
    return [pod for pod in pods if _has_address(pod) and _selects(service, pod)]


def target_port(pod: Mapping[str, Any], target: int | str) -> int:
    """A Service's targetPort as the number of the pod's port; 0 for a name that it has not."""
    if isinstance(target, int) or target.isdigit():
        return int(target)
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", ()):
            if port.get("name") == target:
                return int(port["containerPort"])
    return 0


def _has_address(pod: Mapping[str, Any]) -> bool:
    status = pod.get("status", {})
    return bool(status.get("podIP")) and status.get("phase") not in ("Succeeded", "Failed")


def _selects(service: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    labels = pod["metadata"].get("labels", {})
    if pod["metadata"]["namespace"] != service["metadata"]["namespace"]:
        return False
    if not all(labels.get(k) == v for k, v in service["spec"]["selector"].items()):
        return False
    if service["spec"].get("publishNotReadyAddresses"):
        return True
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


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
    runtime: PodRuntime
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
        """The listener; while something else has the port, that is told, and tried again."""
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
            if not await visitors.is_one_of(self._users(), writer.get_extra_info("socket")):
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
        """To whom the namespace belongs, besides the cluster's owner."""
        guest = guest_of(self.objects, self.service["metadata"]["namespace"])
        return [] if guest is None else [guest.uid]

    async def _connect(self, turn: int) -> Connection:
        """To one of the Service's pods; to a pod that does not listen yet, a little later."""
        until = asyncio.get_running_loop().time() + _CONNECT_SECONDS
        metadata = self.service["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        while True:
            service = self.objects.get("services", namespace, name)
            pods = behind(service, self.objects.list("pods", namespace))
            try:
                if not pods:
                    raise TrainyardError(f"no pod is ready behind Service {name}")
                pod = pods[turn % len(pods)]
                target = dict(_node_ports(service)).get(self.number, 0)
                return await self.runtime.connect(pod, target_port(pod, target))
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


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pod: Connection
) -> None:
    """Move bytes both ways until both sides have ended."""

    async def upstream() -> None:
        data = await visitors.opening(reader)
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
    except* visitors.RefusedError as refused:
        writer.write(refused.exceptions[0].answer)  # type: ignore[union-attr]
    except* OSError as broken:
        raise broken.exceptions[0] from None
