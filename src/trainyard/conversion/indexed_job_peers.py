"""How pods of indexed Jobs find each other: their host names, labels and annotations become
variables of a GenericJob.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any

from trainyard.conversion.foreign_common import Object
from trainyard.schema.dataclass import dataclass

INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_FIELD = re.compile(r"metadata\.(?:labels|annotations)\['(?P<key>[^']+)'\]\Z")
_KEYS = re.compile(r"(?:jobset\.sigs\.k8s\.io|batch\.kubernetes\.io)/[a-z-]+")
_PORT = re.compile(r"(.*_)?PORT\Z")
_CONTAINERS = ("initContainers", "containers")


@dataclass(slots=True)
class Hosts:
    """Host names of pods in the original, and the variables that replace them."""

    pattern: re.Pattern[str]
    variable_for: Callable[[re.Match[str]], str | None]
    """None for the name of a pod that does not exist."""
    is_served: bool = True
    """Whether there are Services; without them names stay as they are."""
    found: list[str] = field(default_factory=list)
    """The host names that were found so far."""

    def replace_in(self, text: str) -> str:
        """The text with variables for host names, which are noted in `found`."""
        return self.pattern.sub(self._replace, text)

    def _replace(self, match: re.Match[str]) -> str:
        variable = self.variable_for(match)
        if variable is None:
            return match[0]
        self.found.append(match[0])
        return variable if self.is_served else match[0]


def no_hosts() -> Hosts:
    """The hosts of pods that have no names: nothing matches."""
    return Hosts(re.compile(r"(?!)"), lambda _: None)


def host_pattern(name: str, subdomain: str) -> re.Pattern[str]:
    """A pattern of hosts that match `name` in a subdomain, with or without the cluster's domain."""
    rest = r"(?:\.[a-z0-9-]+(?:\.svc(?:\.[a-z0-9.-]*[a-z0-9])?)?)?"
    return re.compile(rf"(?<![\w.$-]){name}\.{re.escape(subdomain)}{rest}(?![\w-])")


def substitute_peers(pod: Object, labels: dict[str, str], hosts: Hosts) -> list[str]:
    """Replace indexes and host names in a pod's containers; returns notes.

    `labels`: values of labels and annotations that pods of the original refer to, by their keys.
    """
    spec = pod["spec"]
    for kind in _CONTAINERS:
        for container in spec.get(kind) or ():
            for key in ("command", "args"):
                if container.get(key):
                    container[key] = [hosts.replace_in(str(word)) for word in container[key]]
            env = [_variable(each, labels, hosts) for each in container.get("env") or ()]
            wants = kind == "containers" or INDEX_VARIABLE in str(container)
            if INDEX in labels and wants and all(e.get("name") != INDEX_VARIABLE for e in env):
                env.append({"name": INDEX_VARIABLE, "value": labels[INDEX]})
            if env:
                container["env"] = env
    left = sorted({word for text in _texts(pod) for word in _KEYS.findall(text)})
    return [f"pods have no {word} here" for word in left]


def _variable(entry: Object, labels: dict[str, str], hosts: Hosts) -> Object:
    value = entry.get("value")
    if isinstance(value, str):
        return {**entry, "value": hosts.replace_in(value)}
    path = ((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath") or ""
    if (match := _FIELD.match(path)) and match["key"] in labels:
        return {"name": entry.get("name"), "value": labels[match["key"]]}
    return entry


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield str(key)
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def service_ports(pods: Iterable[Object]) -> list[Object]:
    """The ports for Services of pods: those of their containers, else those in variables such as
    MASTER_PORT."""
    containers = [each for pod in pods for each in pod["spec"].get("containers") or ()]
    declared = [port for each in containers for port in each.get("ports") or ()]
    found: dict[tuple[Any, Any], Object] = {}
    for port in declared:
        key = port.get("containerPort"), port.get("protocol", "TCP")
        found.setdefault(key, {"port": key[0], **_protocol(key[1])})
    for entry in (e for each in containers for e in each.get("env") or () if not declared):
        if _PORT.match(str(entry.get("name"))) and str(entry.get("value", "")).isdigit():
            found.setdefault((int(entry["value"]), "TCP"), {"port": int(entry["value"])})
    if len(found) == 1:
        return list(found.values())
    return [{"name": f"port-{n}", **port} for n, port in enumerate(found.values())]


def _protocol(name: str) -> Object:
    return {} if name == "TCP" else {"protocol": name}
