"""A pod's /etc/resolv.conf from its dnsPolicy and dnsConfig, as the kubelet composes it.

https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/kubelet/network/dns/dns.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SEARCHES = ("{0}.svc.cluster.local", "svc.cluster.local", "cluster.local")


def compose(spec: Mapping[str, Any], namespace: str, name_server: str, machine: str) -> str:
    """The text of the file.

    ``name_server`` resolves names of this cluster and outside; "" if there is none. ``machine`` is
    the text of the machine's own file, used with dnsPolicy Default.
    """
    policy, config = spec.get("dnsPolicy") or "ClusterFirst", spec.get("dnsConfig") or {}
    servers = [name_server] if name_server and policy != "None" else []
    searches: list[str] = []
    options: dict[str, str] = {}
    if policy == "Default":  # the machine's servers are those that the pods' asks
        searches, options = _read(machine)
    elif policy != "None":
        searches, options = [each.format(namespace) for each in _SEARCHES], {"ndots": "5"}
    servers += config.get("nameservers") or () if name_server else ()
    searches += config.get("searches") or ()
    options |= {each["name"]: each.get("value") or "" for each in config.get("options") or ()}
    lines = [f"nameserver {server}" for server in dict.fromkeys(servers)]
    if searches:
        lines.append(" ".join(["search", *dict.fromkeys(searches)]))
    if options:
        given = (f"{name}:{value}" if value else name for name, value in options.items())
        lines.append(" ".join(["options", *given]))
    return "".join(f"{line}\n" for line in lines)


def _read(text: str) -> tuple[list[str], dict[str, str]]:
    """The search list (the last line counts) and all options of a resolv.conf."""
    searches: list[str] = []
    options: dict[str, str] = {}
    for line in text.splitlines():
        key, *words = line.split() or [""]
        if key in ("search", "domain"):
            searches = words
        elif key == "options":
            options |= {name: value for name, _, value in (each.partition(":") for each in words)}
    return searches, options
