"""What the relay forwards to Services' addresses, and what their names stand for.

Both follow Services, pods and Endpoints. The relay and the resolver live in the pod runtime; this
module only decides what they are sent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainyard.embedded.node.container_runtime import ContainerRuntime
from trainyard.embedded.node.network.hosts_files import DOMAIN, ServiceNames
from trainyard.embedded.service_endpoints import (
    EndpointIndex,
    Key,
    host_name_below,
    is_controller_written,
    manual_endpoints,
    port_key,
    routable_endpoints,
    target_port,
)
from trainyard.embedded.storage.journal import Event
from trainyard.podruntime.protocol import Forward, Name, Named, SetNames
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
    """The relay's table and the names of Services, kept current from events.

    In plain mode a Service's address does not exist: peers get the address of its pod. A forward is
    then only needed where the port differs from the target's.
    """

    def __init__(self, *, plain: bool) -> None:
        self._plain = plain
        self._index = EndpointIndex()
        self._endpoints: dict[Key, Object] = {}
        self._touched: set[Key] = set()
        self._aliases: set[Key] = set()
        self._forwards: dict[Key, list[Forward]] = {}

    def observe(self, event: Event) -> bool:
        """Take in a change of a Service, pod or Endpoints; returns whether any is pending."""
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
        """What the names of changed Services stand for now; their forwards are computed anew."""
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
        """Everything that the relay is to forward, as of the last take_changed_names()."""
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
        """Names of a headless Service without a selector, from Endpoints that a user wrote."""
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


class ResolverUpdates:
    """Names of Services that the resolver in the pod runtime does not know yet.

    Changes that arrive during a request go together with the next one.
    """

    def __init__(self, runtime: ContainerRuntime) -> None:
        self._runtime = runtime
        self._known: dict[str, str] = {}
        self._changed: dict[str, str] = {}
        self._is_new = True

    def observe(self, known: Mapping[Key, ServiceNames]) -> None:
        """Take in what names stand for now."""
        for (namespace, service), each in known.items():
            key, text = f"{namespace}/{service}", ""
            if each.names or each.alias:
                message = Named(each.names, each.ports, each.is_headless, each.alias)
                text = json.dumps(message, separators=(",", ":"))
            if self._known.get(key, "") != text:
                self._changed[key] = self._known[key] = text
                if not text:
                    del self._known[key]

    async def send(self) -> None:
        """Send the resolver all changes since the last time."""
        if self._changed:
            message = SetNames(self._changed, self._is_new)
            self._changed, self._is_new = {}, False
            await self._runtime.request(message)
