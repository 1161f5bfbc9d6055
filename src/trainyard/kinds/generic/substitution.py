"""Variables in a GenericJob's command, args and env values.

`$(type)`, `$(rank)`, `$(replicas[T])`, `$(service.T[N].host)` and `$(service.port[P])`. Any other
`$(NAME)` is Kubernetes' own syntax and left alone, and so is the escaped `$$(` (decision 20).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.kinds.shared.workload import ReplicaKey

_VARIABLE = re.compile(
    r"\$\$|\$\((?P<own>type|rank)\)"
    r"|\$\(replicas\[(?P<replicas>[^\]()]+)\]\)"
    r"|\$\(service\.(?P<type>[^\[\]()]+)\[(?P<index>\d+)\]\.host\)"
    r"|\$\(service\.port\[(?P<port>[^\]()]+)\]\)"
)


@dataclass(frozen=True, slots=True)
class Variables:
    """What the variables stand for, in one replica. `hosts` is None without `spec.service`."""

    key: ReplicaKey
    replicas: Mapping[str, int]
    hosts: Mapping[ReplicaKey, str] | None
    ports: Mapping[str, int]

    def apply(self, text: str) -> str:
        """The text with every variable that can be resolved."""
        return _VARIABLE.sub(self._value, text) if "$(" in text else text

    def _value(self, match: re.Match[str]) -> str:
        value: object = None
        if own := match["own"]:
            value = self.key.type if own == "type" else self.key.ordinal
        elif name := match["replicas"]:
            value = self.replicas.get(name)
        elif name := match["type"]:
            value = (self.hosts or {}).get(ReplicaKey(name, int(match["index"])))
        elif name := match["port"]:
            value = self.ports.get(name) if self.hosts is not None else None
        return match[0] if value is None else str(value)

    def in_container(self, container: Mapping[str, Any]) -> dict[str, Any]:
        """The container with variables replaced in command, args and env values."""
        changed = dict(container)
        for field in ("command", "args"):
            if field in changed:
                changed[field] = self._in_texts(changed[field])
        if "env" in changed:
            changed["env"] = [
                {**entry, "value": self.apply(entry["value"])} if "value" in entry else entry
                for entry in changed["env"]
            ]
        return changed

    def _in_texts(self, texts: Sequence[str]) -> list[str]:
        return [self.apply(text) for text in texts]
