"""The variables by which containers of old find Services: as the kubelet and docker set them.

https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainyard.schema.rules.services import HEADLESS


def service_links(services: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Of all Services that have an address, in their order."""
    return {name: value for each in services for name, value in _of(each)}


def _of(service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    spec = service["spec"]
    address, ports = spec.get("clusterIP") or "", spec.get("ports") or ()
    if address in ("", HEADLESS) or not ports:
        return
    prefix = _variable(service["metadata"]["name"])
    yield f"{prefix}_SERVICE_HOST", address
    yield f"{prefix}_SERVICE_PORT", str(ports[0]["port"])
    for port in ports:
        if port.get("name"):
            yield f"{prefix}_SERVICE_PORT_{_variable(port['name'])}", str(port["port"])
    for index, port in enumerate(ports):
        protocol, number = port.get("protocol") or "TCP", str(port["port"])
        url = f"{protocol.lower()}://{address}:{number}"
        if not index:
            yield f"{prefix}_PORT", url
        link = f"{prefix}_PORT_{number}_{protocol}"
        yield link, url
        yield f"{link}_PROTO", protocol.lower()
        yield f"{link}_PORT", number
        yield f"{link}_ADDR", address


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")
