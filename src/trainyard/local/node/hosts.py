"""Name resolution by /etc/hosts: one file per group of pods, kept current while they run.

A group is the pods of a namespace that share a subdomain, which is how the pods of most jobs are
made. A pod without one has no name for others, as in Kubernetes, and is a group by itself. Each
group's file is mounted into all of its pods and rewritten in place, so that a pod started later is
found by those that run already. It holds the reverse look-up as well: a process that asks for the
name of a peer's address never waits for a name server.
"""

from __future__ import annotations

import os
from typing import NamedTuple

_DOMAIN = "svc.cluster.local"
_HEAD = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
_RESOLVER = "search {0}.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"


class Host(NamedTuple):
    namespace: str
    subdomain: str
    hostname: str
    address: str

    @property
    def group(self) -> tuple[str, str]:
        """Namespace, and what no other group of it has."""
        return self.namespace, self.subdomain or f"{self.hostname}."


class HostsFiles:
    """All groups of one node. ``folder`` receives the files."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        os.makedirs(folder, exist_ok=True)
        self._pods: dict[str, Host] = {}
        self._services: dict[tuple[str, str], str] = {}
        self._written: dict[str, str] = {}
        self._name_server = ""

    def path(self, group: tuple[str, str]) -> str:
        """The file to mount at /etc/hosts for the pods of this group."""
        return os.path.join(self._folder, "_".join(group))

    def set_name_server(self, address: str) -> None:
        """Who answers what the hosts file cannot; "": nobody, a look-up then fails at once."""
        self._name_server = address

    def resolver_path(self, namespace: str) -> str:
        """The file to mount at /etc/resolv.conf."""
        path = os.path.join(self._folder, f"{namespace}.resolv")
        text = _RESOLVER.format(namespace)
        if self._name_server:
            text += f"nameserver {self._name_server}\n"
        if self._written.get(path) != text:
            self._written[path] = text
            _rewrite(path, text.encode())
        return path

    def set_pod(self, uid: str, host: Host) -> None:
        self._pods[uid] = host
        self._write(host.group)

    def remove_pod(self, uid: str) -> None:
        host = self._pods.pop(uid, None)
        if host is None:
            return
        if any(other.group == host.group for other in self._pods.values()):
            self._write(host.group)
        elif (path := self.path(host.group)) in self._written:
            del self._written[path]
            os.unlink(path)

    def set_service(self, namespace: str, name: str, address: str) -> None:
        """``address`` "" removes the service; a headless one needs no entry of its own."""
        if self._services.get((namespace, name), "") == address:
            return
        self._services[namespace, name] = address
        if not address:
            del self._services[namespace, name]
        for group in {pod.group for pod in self._pods.values() if pod.namespace == namespace}:
            self._write(group)

    def _write(self, group: tuple[str, str]) -> None:
        namespace = group[0]
        lines = [_HEAD, *(_pod_line(h) for h in self._pods.values() if h.group == group)]
        for (space, name), address in self._services.items():
            short = f"{name} " if space == namespace else ""
            lines.append(f"{address} {short}{name}.{space} {name}.{space}.{_DOMAIN}\n")
        text = "".join(lines)
        path = self.path(group)
        if self._written.get(path) != text:
            self._written[path] = text
            _rewrite(path, text.encode())


def _pod_line(host: Host) -> str:
    """The pod's names; and, for the reverse look-up only, its address as IPv6 sockets show it.

    The final dot keeps that second line out of forward look-ups, which must give IPv4 addresses.
    """
    names = host.hostname
    if host.subdomain:
        short = f"{host.hostname}.{host.subdomain}"
        middle = f"{short}.{host.namespace}"
        names = f"{middle}.{_DOMAIN} {host.hostname} {short} {middle}"
    return f"{host.address} {names}\n::ffff:{host.address} {host.hostname}.\n"


def _rewrite(path: str, data: bytes) -> None:
    """Replace the content in place: a mounted file is an inode, a new one would not be seen."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)
