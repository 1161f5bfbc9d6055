"""Name resolution by /etc/hosts: one file per group of pods, kept current while they run.

A group is the pods of a namespace that share a subdomain, which is how the pods of most jobs are
made. A pod without one has no name for others, as in Kubernetes, and is a group by itself. Each
group's file is mounted into all of its pods and rewritten in place, so that running pods find one
that starts later; pods with the same hostAliases share a file of their own. Services are listed by
address, a headless one once for each of its pods. A job's Service is listed for the job's pods
only, or every file would grow with every job. The file serves reverse look-ups too, so that no
process waits for a name server when it asks for the name of a peer's address.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import NamedTuple

from trainyard.embedded.node.runtime_folder import RuntimeFolder
from trainyard.podruntime.protocol import Name

DOMAIN = "svc.cluster.local"
_HEAD = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"

Group = tuple[str, str]
"""Namespace, and a subdomain or something unique."""


class PodHost(NamedTuple):
    """A pod's line in the files of its peers."""

    namespace: str
    subdomain: str
    hostname: str
    address: str
    aliases: str = ""
    """Lines of its own."""

    @property
    def group(self) -> Group:
        """The group of the pod; one without a subdomain is a group by itself."""
        return self.namespace, self.subdomain or f"{self.hostname}."


class ServiceNames(NamedTuple):
    """What the names of a Service stand for.

    `is_private`: listed for the pods of its own group only. `ports`, `is_headless` and `alias` are
    for the resolver, as in its `Named`.
    """

    names: tuple[Name, ...]
    is_private: bool = False
    ports: tuple[str, ...] = ()
    is_headless: bool = False
    alias: str = ""


_NO_NAMES = ServiceNames(())


class HostsFiles:
    """The hosts files of all groups of one node, written to ``folder``."""

    def __init__(self, folder: RuntimeFolder) -> None:
        self._folder = folder
        os.makedirs(folder.path, exist_ok=True)
        self._pods: dict[str, PodHost] = {}
        self._groups: dict[Group, dict[str, str]] = {}
        """The lines of each pod."""
        self._services: dict[Group, ServiceNames] = {}
        self._public: dict[Group, ServiceNames] = {}
        """Services that all pods know."""
        self._written: dict[str, str] = {}
        self.name_server = ""
        """Address of the resolver; "" if there is none: names not in the file then fail at once."""

    def path(self, group: Group, aliases: str = "") -> str:
        """The file to mount at /etc/hosts for pods of this group with these hostAliases."""
        return self._folder.child(_file_name(group, aliases)).runtime_path

    def set_pod(self, uid: str, host: PodHost) -> None:
        """Add or change a pod in the file that its group shares."""
        self._pods[uid] = host
        self._groups.setdefault(host.group, {})[uid] = _pod_line(host)
        self._write(host.group)

    def remove_pod(self, uid: str) -> None:
        """Take a pod out of its group's file; a file that nobody needs is deleted."""
        host = self._pods.pop(uid, None)
        if host is None:
            return
        group = self._groups[host.group]
        del group[uid]
        if not group:
            del self._groups[host.group]
        left = {_file_name(host.group, self._pods[other].aliases) for other in group}
        name = _file_name(host.group, host.aliases)
        if name in self._written and name not in left:
            del self._written[name]
            self._unlink(name)
        self._write(host.group)

    def _unlink(self, name: str) -> None:
        os.unlink(self._folder.child(name).path)

    def set_services(self, changed: Mapping[Group, ServiceNames]) -> None:
        """Replace the names of these Services, by namespace and name."""
        touched: set[Group] = set()
        is_public = False
        for key, known in changed.items():
            old = self._services.pop(key, _NO_NAMES)
            self._public.pop(key, None)
            if known.names:
                self._services[key] = known
                if not known.is_private:
                    self._public[key] = known
            if old != known:
                touched.add(key)
                is_public |= any(each.names and not each.is_private for each in (old, known))
        if is_public:
            touched |= self._groups.keys()
        for group in touched:
            self._write(group)

    def _write(self, group: Group) -> None:
        lines = self._groups.get(group)
        if lines is None:
            return
        own = self._services.get(group, _NO_NAMES)
        private = _lines(group, own, group[0]) if own.is_private else ""
        public = []
        for key, known in self._public.items():
            public.append(_lines(key, known, group[0]))
            if key != group:  # otherwise its pods are listed anyway
                public.append(_lines(key, known, group[0], pods=True))
        text = "".join([_HEAD, *lines.values(), private, *public])
        for aliases in {self._pods[uid].aliases for uid in lines}:
            name, whole = _file_name(group, aliases), text + aliases
            if self._written.get(name) != whole:
                self._written[name] = whole
                _rewrite(self._folder.child(name).path, whole.encode())


def _file_name(group: Group, aliases: str) -> str:
    own = [hashlib.sha1(aliases.encode()).hexdigest()[:16]] if aliases else []
    return "_".join([*group, *own])


def _lines(key: Group, known: ServiceNames, reader: str, *, pods: bool = False) -> str:
    """Lines for a Service, or for the pods named below it, as namespace ``reader`` calls them."""
    namespace, service = key
    lines = []
    for address, hostname, _ in known.names:
        if hostname or not pods:
            name = f"{hostname}.{service}" if pods else service
            short = f"{name} " if namespace == reader else ""
            middle = f"{name}.{namespace}"
            lines.append(f"{address} {short}{middle} {middle}.{DOMAIN}\n")
    return "".join(lines)


def _pod_line(host: PodHost) -> str:
    """The pod's names; and, for the reverse look-up only, its address as IPv6 sockets show it.

    The final dot keeps that second line out of forward look-ups, which must give IPv4 addresses.
    """
    names = host.hostname
    if host.subdomain:
        short = f"{host.hostname}.{host.subdomain}"
        middle = f"{short}.{host.namespace}"
        names = f"{middle}.{DOMAIN} {host.hostname} {short} {middle}"
    return f"{host.address} {names}\n::ffff:{host.address} {host.hostname}.\n"


def _rewrite(path: str, data: bytes) -> None:
    """Replace the content in place: a mounted file is an inode, a new one would not be seen."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)
