"""Services: connections to their addresses, which the relay forwards, and to ports of the node.

What connects to this machine at 127.0.0.1 reaches a pod behind a NodePort Service: the one way into
the pods' network from outside, so it is kept to loopback and to this user. TCP only (decision 64).
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
from trainyard.embedded.node.network.hosts_files import DOMAIN, ServiceNames
from trainyard.embedded.resources.served.services_resource import NODE_PORT_HOST, ON_NODE_PORTS
from trainyard.embedded.service_endpoints import (
    EndpointIndex,
    Key,
    host_name_below,
    is_controller_written,
    manual_endpoints,
    port_key,
    routable_endpoints,
    route_targets,
    target_port,
)
from trainyard.embedded.storage.journal import Event
from trainyard.embedded.tenants import tenant_of
from trainyard.kube.errors import NotFound
from trainyard.podruntime.protocol import Forward, Name
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError
from trainyard.schema.rules.service_rules import HEADLESS

_CHUNK = 64 << 10
_MOST_ALIASES = 8
"""From one ExternalName to the next."""
_LISTEN_SECONDS = 2.0
_CONNECT_SECONDS = 10.0
_CONNECT_RETRY_SECONDS = 0.05
_log = logging.getLogger(__name__)
Object = dict[str, Any]
Warn = Callable[[Object, str, str], None]


class ServiceForwarding:
    """What the relay is to forward, and what names of Services stand for, kept current as events
    tell of Services, pods and Endpoints.

    In plain mode a Service's address does not exist: peers are given the address of its pod. A
    forward is then only needed where the port differs from the target's.
    """

    def __init__(self, *, plain: bool) -> None:
        self._plain = plain
        self._index = EndpointIndex()
        self._endpoints: dict[Key, Object] = {}
        self._touched: set[Key] = set()
        self._aliases: set[Key] = set()
        self._forwards: dict[Key, list[Forward]] = {}

    def observe(self, event: Event) -> bool:
        """Take up a change; whether there is something to do about it."""
        if event.resource == "endpoints":
            metadata = event.object["metadata"]
            key = (metadata["namespace"], metadata["name"])
            self._endpoints.pop(key, None)
            if event.type != "DELETED" and not is_controller_written(event.object):
                self._endpoints[key] = event.object
            self._touched.add(key)
        else:
            found = set(self._index.observe(event))
            self._touched |= found
            if event.resource == "services":
                is_alias = event.object["spec"].get("type") == "ExternalName"
                is_there = event.type != "DELETED"
                self._aliases = (
                    self._aliases | found if is_alias and is_there else self._aliases - found
                )
        return bool(self._touched)

    def take_changed_names(self) -> dict[Key, ServiceNames]:
        """Take up what was touched: what its names stand for now."""
        known = {}
        for key in self._touched | self._aliases:
            service = self._index.services.get(key)
            known[key] = self._names_of(key, service)
            found = [] if service is None else list(self._forwards_of(key, service))
            self._forwards[key] = found
            if not found:
                del self._forwards[key]
        self._touched.clear()
        return known

    def forwards(self) -> list[Forward]:
        """Everything that is to be forwarded, as of the last time it was settled."""
        return [each for key in sorted(self._forwards) for each in self._forwards[key]]

    def _names_of(self, key: Key, service: Object | None, depth: int = 0) -> ServiceNames:
        if service is None:
            return ServiceNames(())
        spec = service["spec"]
        if spec.get("type") == "ExternalName":
            return self._names_of_alias(service, depth)
        address, named = spec.get("clusterIP", ""), _named_ports(spec)
        ports = tuple(f"_{p['name']}._{p.get('protocol', 'TCP').lower()}" for p in named)
        if address != HEADLESS:
            own = (Name(address, "", tuple(p["port"] for p in named)),) if address else ()
            return ServiceNames(own, ports=ports)
        owners = service["metadata"].get("ownerReferences", ())
        is_private = any(o.get("controller") for o in owners)
        names = self._manual_names(key, named)
        if spec.get("selector"):
            ready = [each for each in self._index.endpoints_of(service) if each.is_ready]
            names = [
                Name(e.address, host_name_below(service, e.pod), _numbers(e.pod, named))
                for e in ready
            ]
        return ServiceNames(tuple(names), is_private, ports, is_headless=True)

    def _names_of_alias(self, service: Object, depth: int) -> ServiceNames:
        target, known = external_name_target(service), ServiceNames(())
        if target is not None and depth < _MOST_ALIASES:
            known = self._names_of(target, self._index.services.get(target), depth + 1)
        names = tuple(Name(each.address) for each in known.names)
        return ServiceNames(names, alias=service["spec"].get("externalName", ""))

    def _manual_names(self, key: Key, named: list[Object]) -> list[Name]:
        """Of a headless Service without a selector, from somebody's own Endpoints."""
        return [
            Name(each["ip"], each.get("hostname", ""), _manual_port_numbers(subset, named))
            for subset in (self._endpoints.get(key) or {}).get("subsets") or ()
            for each in subset.get("addresses") or ()
        ]

    def _forwards_of(self, key: Key, service: Object) -> Iterator[Forward]:
        spec = service["spec"]
        address = spec.get("clusterIP", "")
        if address in ("", HEADLESS):
            return
        pods = routable_endpoints(self._index.endpoints_of(service))
        for port in spec.get("ports") or ():
            protocol = port.get("protocol", "TCP")
            if protocol not in ("TCP", "UDP"):
                continue
            if spec.get("selector"):
                known = ((each.address, target_port(each.pod, port)) for each in pods)
                ends = tuple((host, number) for host, number in known if number)
            else:
                ends = tuple(manual_endpoints(self._endpoints.get(key) or {}, port))
            number = port["port"]
            if not self._plain:
                yield Forward(address, number, ends, protocol)
            elif protocol == "TCP":
                yield from (Forward(host, number, ((host, n),)) for host, n in ends if n != number)


def external_name_target(service: Mapping[str, Any]) -> Key | None:
    """The Service that an ExternalName names, if it names one of this cluster."""
    name, _, rest = str(service["spec"].get("externalName", "")).rstrip(".").partition(".")
    namespace, _, domain = rest.partition(".")
    return (namespace, name) if domain == DOMAIN and namespace else None


def _named_ports(spec: Mapping[str, Any]) -> list[Object]:
    return [port for port in spec.get("ports") or () if port.get("name")]


def _numbers(pod: Mapping[str, Any], ports: list[Object]) -> tuple[int, ...]:
    return tuple(target_port(pod, port) for port in ports)


def _manual_port_numbers(subset: Mapping[str, Any], ports: list[Object]) -> tuple[int, ...]:
    numbers = {port_key(each): each["port"] for each in subset.get("ports") or ()}
    return tuple(numbers.get(port_key(port), 0) for port in ports)


class NodePorts:
    """Listens for the NodePort Services that it is told of. ``warn(service, reason, text)``."""

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
        """To whom the namespace belongs, besides the cluster's owner."""
        tenant = tenant_of(self.objects, self.service["metadata"]["namespace"])
        return [] if tenant is None else [tenant.uid]

    async def _connect(self, turn: int) -> PodConnection:
        """To one of the Service's pods; to a pod that does not listen yet, a little later."""
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
