"""Environment variables with the addresses of Services, as the kubelet sets them.

https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.embedded.storage.journal import Event
from trainyard.schema.rules.service_rules import HEADLESS


class ServiceEnvironment:
    """The variables of all Services that have an address, kept current from events.

    Headless Services, such as those of jobs, have no variables, so that many jobs do not slow down
    the start of a pod.
    """

    def __init__(self) -> None:
        self._variables: dict[str, dict[str, dict[str, str]]] = {}

    def observe(self, event: Event) -> None:
        """Take in a change of a Service."""
        metadata = event.object["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        variables = {} if event.type == "DELETED" else dict(_variables_of(event.object))
        if variables:
            self._variables.setdefault(namespace, {})[name] = variables
        elif namespace in self._variables:
            self._variables[namespace].pop(name, None)

    def variables_for(self, namespace: str) -> dict[str, str]:
        """The variables of a namespace's Services, in the order of their names."""
        each = self._variables.get(namespace, {})
        return {name: value for key in sorted(each) for name, value in each[key].items()}


def _variables_of(service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
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
