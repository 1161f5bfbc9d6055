"""Shares the channel's CA between the operators of one Lease, and routes reports to the leader.

All of them read the CA from one Secret, so that pods trust whichever leads. The channel's Service
has no selector: the leader writes its own address into the Endpoints (decision 219).
"""

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

_RETRY_SECONDS, _CHECK_SECONDS = 2.0, 60.0


@dataclass(frozen=True, slots=True)
class ChannelCredentials:
    """The Secret with the channel's CA, for these `hosts`."""

    client: Client
    namespace: str
    name: str
    hosts: Sequence[str]
    now: Clock

    async def load_or_issue(self) -> ChannelCA:
        """The current CA; issued, or renewed and stored, where necessary. Raises KubeError."""
        while True:
            try:
                stored = await self.client.get(SECRETS, self.name, self.namespace)
            except NotFound:
                stored = {}
            found = ChannelCA.from_files(_decoded(stored.get("data") or {}))
            if found is not None and found.is_valid_for(self.hosts, self.now()):
                return found
            made = issue_channel_ca(self.hosts, found, self.now())
            try:
                await self._write(stored, made)
            except (AlreadyExists, Conflict):
                continue  # another operator was faster
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
    """Points the channel's Service at this process while it leads; standbys get no reports."""

    client: Client
    namespace: str
    name: str
    address: str
    """The IP address of this process."""
    port: int

    async def maintain(self) -> None:
        """Write the Endpoints, and check them once a minute, until cancelled."""
        while True:
            try:
                await self._write_endpoints()
                await asyncio.sleep(_CHECK_SECONDS)
            except (AlreadyExists, Conflict):
                continue
            except KubeError as error:
                log.warning("pods may not reach this controller: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _write_endpoints(self) -> None:
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
    """Namespace and name of the Service in `NAME.NAMESPACE.svc:PORT`; None for other addresses."""
    parts = address.rpartition(":")[0].split(".")
    return (parts[1], parts[0]) if len(parts) >= 3 and parts[2] == "svc" else None


def _decoded(data: dict[str, str]) -> dict[str, str]:
    try:
        return {name: base64.b64decode(text).decode() for name, text in data.items()}
    except ValueError:
        return {}


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
