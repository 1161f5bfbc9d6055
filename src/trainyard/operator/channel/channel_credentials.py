"""Where the operators of one Lease keep what the pods' channel is trusted by, so that whichever
leads is trusted; and to which of them the channel's Service points (decision 219)."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Sequence
from typing import Any

from trainyard.kube.client import Client
from trainyard.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from trainyard.kube.resources import ENDPOINTS, SECRETS
from trainyard.operator.channel.channel_ca import ChannelCA, issue_channel_ca
from trainyard.operator.runtime_context import Clock
from trainyard.schema.dataclass import dataclass

log = logging.getLogger(__name__)

_AGAIN_SECONDS, _LOOK_SECONDS = 2.0, 60.0


@dataclass(frozen=True, slots=True)
class ChannelCredentials:
    """Keeps it in a Secret."""

    client: Client
    namespace: str
    name: str
    hosts: Sequence[str]
    now: Clock

    async def authority(self) -> ChannelCA:
        """What is trusted now, made or renewed where need be; raises KubeError."""
        while True:
            try:
                stored = await self.client.get(SECRETS, self.name, self.namespace)
            except NotFound:
                stored = {}
            found = ChannelCA.read(_decoded(stored.get("data") or {}))
            if found is not None and found.is_valid_for(self.hosts, self.now()):
                return found
            made = issue_channel_ca(self.hosts, found, self.now())
            try:
                await self._write(stored, made)
            except (AlreadyExists, Conflict):
                continue  # another of us was faster
            return made

    async def _write(self, stored: dict[str, Any], made: ChannelCA) -> None:
        metadata = stored.get("metadata") or {"name": self.name, "namespace": self.namespace}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": "Opaque",
            "data": {name: _encode(text) for name, text in made.files.items()},
        }
        if stored:
            await self.client.replace(SECRETS, secret)
        else:
            await self.client.create(SECRETS, secret, self.namespace)


@dataclass(frozen=True, slots=True)
class LeaderEndpoint:
    """Points a Service without a selector at the process that leads: standbys hear nothing."""

    client: Client
    namespace: str
    name: str
    address: str
    """Of this process."""
    port: int

    async def keep(self) -> None:
        """Point it here, and look now and then whether it still does, until cancelled."""
        while True:
            try:
                await self._point()
                await asyncio.sleep(_LOOK_SECONDS)
            except (AlreadyExists, Conflict):
                continue
            except KubeError as error:
                log.warning("pods may not reach this controller: %s", error)
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _point(self) -> None:
        port = {"name": "reports", "port": self.port, "protocol": "TCP"}
        wanted = {"subsets": [{"addresses": [{"ip": self.address}], "ports": [port]}]}
        metadata = {"name": self.name, "namespace": self.namespace}
        try:
            found = await self.client.get(ENDPOINTS, self.name, self.namespace)
        except NotFound:
            body = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, **wanted}
            await self.client.create(ENDPOINTS, body, self.namespace)
            return
        if found.get("subsets") != wanted["subsets"]:
            await self.client.replace(ENDPOINTS, {**found, **wanted})


def service_from_address(address: str) -> tuple[str, str] | None:
    """Namespace and name of the Service that `NAME.NAMESPACE.svc:PORT` names, if it does."""
    parts = address.rpartition(":")[0].split(".")
    return (parts[1], parts[0]) if len(parts) >= 3 and parts[2] == "svc" else None


def _decoded(data: dict[str, str]) -> dict[str, str]:
    try:
        return {name: base64.b64decode(text).decode() for name, text in data.items()}
    except ValueError:
        return {}


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
