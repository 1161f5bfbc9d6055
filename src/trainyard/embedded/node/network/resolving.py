"""What pods' resolver is told of the names of Services."""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainyard.embedded.node.container_runtime import ContainerRuntime
from trainyard.embedded.node.network.hosts_files import ServiceNames
from trainyard.embedded.service_endpoints import Key
from trainyard.podruntime.protocol import Named, SetNames


class ResolverUpdates:
    """What changes while the resolver is being told is told at once thereafter."""

    def __init__(self, runtime: ContainerRuntime) -> None:
        self._runtime = runtime
        self._known: dict[str, str] = {}
        self._changed: dict[str, str] = {}
        self._is_new = True

    def observe(self, known: Mapping[Key, ServiceNames]) -> None:
        """Take up what names stand for now."""
        for (namespace, service), each in known.items():
            key, text = f"{namespace}/{service}", ""
            if each.names or each.alias:
                told = Named(each.names, each.ports, each.is_headless, each.alias)
                text = json.dumps(told, separators=(",", ":"))
            if self._known.get(key, "") != text:
                self._changed[key] = self._known[key] = text
                if not text:
                    del self._known[key]

    async def send(self) -> None:
        """Of everything that it has not been told of."""
        if self._changed:
            told = SetNames(self._changed, self._is_new)
            self._changed, self._is_new = {}, False
            await self._runtime.request(told)
