"""Addresses of the replicas that a hostfile names, and the ssh configuration that finds them.

A replica is called by its type and number, ``worker-0``, whatever the job's name (decision 110).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # types are not shipped to pods
    from pathlib import Path

    from trainyard.payloads.payload_messages import LaunchDescription, ReplicaAddresses


HOST_PATTERN = "worker-* !*.*"
"""What those names look like to ssh; a full name is left as it is."""

CLIENT_CONFIG = """\
Host *
    Port {port}
    IdentityFile {run}/ssh/id_ed25519
    IdentitiesOnly yes
    UserKnownHostsFile {run}/ssh/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    CheckHostIP no
    BatchMode yes
    KexAlgorithms curve25519-sha256@libssh.org
    ConnectTimeout 10
    ServerAliveInterval 20
    ServerAliveCountMax 3
    LogLevel ERROR
"""
"""The key exchange is one that every OpenSSH since 6.5 knows; newer ones prefer hybrids that take
several times as long, three times in a row before a rank starts."""


def address(places: ReplicaAddresses, host: str) -> str:
    """What to connect to: a name that nothing else in the namespace has, or an address."""
    return places.get("addresses", {}).get(host) or f"{host}.{places['domain']}"


def host_blocks(places: ReplicaAddresses) -> str:
    """The parts of ``ssh_config`` by which ssh finds the replicas."""
    known = places.get("addresses")
    found = known.items() if known else [(HOST_PATTERN, f"%h.{places['domain']}")]
    return "".join(f"Host {host}\n    HostName {place}\n" for host, place in found)


def client_config(spec: LaunchDescription, run: Path) -> str:
    """The whole of the programs' own ``ssh_config``."""
    return host_blocks(spec["places"]) + CLIENT_CONFIG.format(port=spec["port"], run=run)
