"""Values that a pod takes from itself and from its cluster: fieldRef, resourceFieldRef, keys.

And ``$(NAME)`` in commands, arguments and values.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING
from typing import Any, NamedTuple

from trainyard.kube.errors import NotFound
from trainyard.local.node.settings import NodeSettings
from trainyard.local.objects import Objects
from trainyard.schema import quantity
from trainyard.schema.errors import TrainyardError

Warn = Callable[[str, str], None]
_REFERENCE = re.compile(r"\$(\$|\([^)]*\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class NotReady(TrainyardError):
    """A container cannot start yet: something it refers to is missing. Tried again later."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Addresses(NamedTuple):
    pod: str
    host: str


@dataclass(frozen=True, slots=True)
class PodContext:
    """A pod, and all that its environment, its volumes and its start are made from."""

    pod: Mapping[str, Any]
    folder: str
    """Of the pod alone, on the host."""
    addresses: Addresses
    objects: Objects
    settings: NodeSettings
    warn: Warn
    """``warn(reason, text)`` tells the pod's owner what cannot be honoured."""

    @property
    def namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])


# https://kubernetes.io/docs/concepts/workloads/pods/downward-api/
def field_value(pod: Mapping[str, Any], path: str, addresses: Addresses) -> str:
    """The value of a downward-API ``fieldPath``; raises NotReady for an unknown one."""
    metadata, spec = pod["metadata"], pod["spec"]
    if match := _SUBSCRIPT.fullmatch(path):
        return str(metadata.get(match[1], {}).get(match[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        items = metadata.get(path.partition(".")[2], {})
        return "\n".join(f'{key}="{_escape(value)}"' for key, value in sorted(items.items()))
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": addresses.pod,
        "status.podIPs": addresses.pod,
        "status.hostIP": addresses.host,
        "status.hostIPs": addresses.host,
    }
    if path not in values:
        raise NotReady("CreateContainerConfigError", f"unsupported fieldPath {path!r}")
    return str(values[path])


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(container: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    """The value of a ``resourceFieldRef``, divided and rounded up; "0" where no limit is set."""
    kind, _, name = str(reference["resource"]).partition(".")
    amounts = container.get("resources", {})
    raw = amounts.get(kind, {}).get(name, amounts.get("limits", {}).get(name, "0"))
    divisor = quantity.parse(reference.get("divisor") or "1")
    if not divisor:
        divisor = quantity.parse("1")
    return str((quantity.parse(raw) / divisor).to_integral_value(rounding=ROUND_CEILING))


def config_map_data(objects: Objects, namespace: str, name: str) -> dict[str, bytes] | None:
    """All keys of a ConfigMap; None if there is no such object."""
    try:
        found = objects.get("configmaps", namespace, name)
    except NotFound:
        return None
    data = {key: str(value).encode() for key, value in found.get("data", {}).items()}
    for key, value in found.get("binaryData", {}).items():
        data[key] = base64.b64decode(value)
    return data


def secret_data(objects: Objects, namespace: str, name: str) -> dict[str, bytes] | None:
    """All keys of a Secret, decoded; None if there is no such object."""
    try:
        found = objects.get("secrets", namespace, name)
    except NotFound:
        return None
    data = {key: base64.b64decode(value) for key, value in found.get("data", {}).items()}
    for key, value in found.get("stringData", {}).items():
        data[key] = str(value).encode()
    return data


def expand(text: str, variables: Mapping[str, str]) -> str:
    """``$$`` stands for one ``$``; a reference that cannot be resolved stays as it is.

    Source: k8s.io/kubernetes/third_party/forked/golang/expansion.
    """
    if "$" not in text:
        return text

    def replacement(match: re.Match[str]) -> str:
        token = match[1]
        if token == "$":
            return "$"
        return variables.get(token[1:-1], match[0])

    return _REFERENCE.sub(replacement, text)
