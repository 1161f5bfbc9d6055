"""Values that a pod takes from itself and from its cluster: fieldRef, resourceFieldRef, keys.

And ``$(NAME)`` in commands, arguments and values.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING
from typing import Any

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


@dataclass(frozen=True, slots=True)
class PodContext:
    """A pod, and all that its environment, its volumes and its start are made from."""

    pod: Mapping[str, Any]
    folder: str
    """Of the pod alone, on the host."""
    address: str
    objects: Objects
    settings: NodeSettings
    warn: Warn
    """``warn(reason, text)`` tells the pod's owner what cannot be honoured."""

    @property
    def namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])

    def container(self, name: str) -> Mapping[str, Any] | None:
        spec = self.pod["spec"]
        everyone = (*spec.get("initContainers", ()), *spec["containers"])
        return next((each for each in everyone if each["name"] == name), None)

    def keys_of(self, kind: str, name: str) -> dict[str, bytes] | None:
        """All keys of a ConfigMap or Secret, decoded; None if there is no such object."""
        try:
            found = self.objects.get(f"{kind.lower()}s", self.namespace, name)
        except NotFound:
            return None
        encoded, plain = ("data", "stringData") if kind == "Secret" else ("binaryData", "data")
        data = {key: base64.b64decode(value) for key, value in found.get(encoded, {}).items()}
        return data | {key: str(value).encode() for key, value in found.get(plain, {}).items()}


def field_value(context: PodContext, path: str) -> str:
    """The value of a downward-API ``fieldPath``; raises NotReady for an unknown one."""
    metadata, spec = context.pod["metadata"], context.pod["spec"]
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
        "status.podIP": context.address,
        "status.podIPs": context.address,
        "status.hostIP": context.settings.host_ip,
        "status.hostIPs": context.settings.host_ip,
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
