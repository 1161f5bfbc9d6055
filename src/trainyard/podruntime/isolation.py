"""What separates pods: the cluster's network and each pod's namespaces, or nothing.

Three kinds: ``root`` (namespaces, with privileges), ``rootless`` (the same inside a user namespace)
and ``plain`` (neither is permitted: processes with only a loopback address of their own).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from typing import Literal, NamedTuple

from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.network.netlink import LOOPBACK_INDEX, POD_LINK_INDEX, Netlink

Kind = Literal["root", "rootless", "plain"]

_POD_PREFIX, _POD_BITS = "10.244", 16
# The shim's own namespaces, to return to after making a pod's. Without root it could not leave.
_CLUSTER_NAMESPACES = sys.CLONE_NEWNS | sys.CLONE_NEWNET | sys.CLONE_NEWUTS | sys.CLONE_NEWIPC
_NAMESPACES = {sys.CLONE_NEWNET: "net", sys.CLONE_NEWUTS: "uts", sys.CLONE_NEWIPC: "ipc"}
CONTAINER_NAMESPACES = {sys.CLONE_NEWPID: "pid", sys.CLONE_NEWNS: "mnt"}
"""Namespaces of which each container has its own, by their names in /proc."""

# As with common container runtimes, a container needs no privilege for port 22 or 80.
_UNPRIVILEGED_PORTS = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
# New interfaces get no IPv6 link-local address: nothing uses it.
_NO_IPV6 = "/proc/sys/net/ipv6/conf/default/disable_ipv6"


class Sandbox(NamedTuple):
    """A pod's address, and its namespaces as descriptors by kind (none in plain mode).

    ``user`` is the user namespace that owns them, which programs enter last; -1 where the kernel
    permits none.
    """

    address: str
    namespaces: dict[int, int]
    user: int = -1

    @property
    def all_namespaces(self) -> dict[int, int]:
        own = {sys.CLONE_NEWUSER: self.user} if self.user >= 0 else {}
        return self.namespaces | own


# Pods have addresses of their own, also where they are plain processes (decision 41).
class PodNetwork:
    """Gives pods addresses. This class is the plain network, on the loopback interface."""

    kind: Kind = "plain"
    gateway = "127.0.0.1"

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self._prefix = f"127.{64 + os.getpid() % 128}"
        self._next = 2
        self._used: set[str] = set()

    def add_pod(self, hostname: str, address: str = "") -> Sandbox:
        """Make a pod's sandbox. A wanted ``address`` may be shared with a pod that is ending."""
        return Sandbox(address or self._allocate(), {})

    def add_spare(self, most: int) -> bool:
        """Make a sandbox for a later pod, unless ``most`` wait already; False where nothing is to
        do."""
        return False

    def remove_pod(self, sandbox: Sandbox) -> None:
        """Free the address, and close the namespaces, which end with their last process."""
        self._used.discard(sandbox.address)
        for fd in (*sandbox.namespaces.values(), sandbox.user):
            if fd >= 0:
                os.close(fd)

    def open_socket(self, sandbox: Sandbox, kind: int = socket.SOCK_STREAM) -> int:
        return socket.socket(socket.AF_INET, kind).detach()

    def open_listener(self, port: int) -> int:
        """Listen at the gateway. Only pods reach it, except without namespaces."""
        return socket.create_server((self.gateway, port), backlog=128).detach()

    def _allocate(self) -> str:
        """The address that has been free for longest, so that nobody's cache still knows it."""
        address = ""
        while not address or address in self._used:
            address = f"{self._prefix}.{self._next >> 8}.{self._next & 255}"
            self._next = 2 + (self._next - 1) % (2**16 - 4)
        self._used.add(address)
        return address


class NamespaceNetwork(PodNetwork):
    """A bridge in a network namespace; must be made inside that namespace."""

    gateway = f"{_POD_PREFIX}.0.1"

    def __init__(self, kind: Kind, reason: str = "") -> None:
        super().__init__(reason)
        self.kind = kind
        self._prefix = _POD_PREFIX
        self._count = 0
        self._spares: list[Sandbox] = []
        self._own = _open_namespaces()
        self._maps = _identity_maps()
        self._try_user_namespace()
        _write_setting(_NO_IPV6, "1")
        self._netlink = Netlink()
        self._netlink.set_up(LOOPBACK_INDEX)
        self._bridge = self._netlink.add_bridge()
        self._netlink.add_address(self.gateway, _POD_BITS, self._bridge)

    def add_pod(self, hostname: str, address: str = "") -> Sandbox:
        sandbox = self._spares.pop() if self._spares else self._make()
        sys.setns(sandbox.namespaces[sys.CLONE_NEWUTS], sys.CLONE_NEWUTS)
        try:
            sys.set_hostname(hostname)
        finally:
            sys.setns(self._own[sys.CLONE_NEWUTS], sys.CLONE_NEWUTS)
        return sandbox

    def add_spare(self, most: int) -> bool:
        if len(self._spares) >= most:
            return False
        try:
            self._spares.append(self._make())
        except OSError:
            return False  # the next pod reports what is wrong
        return True

    def _make(self) -> Sandbox:
        address = self._allocate()
        self._count += 1
        opened: dict[int, int] = {}
        user = -1
        try:
            if self._maps:
                user, opened = _make_owned_namespaces(self._maps)
                sys.setns(opened[sys.CLONE_NEWNET], sys.CLONE_NEWNET)
            else:
                sys.unshare(sys.CLONE_NEWNET | sys.CLONE_NEWUTS | sys.CLONE_NEWIPC)
                opened = _open_namespaces()
            _write_setting(_NO_IPV6, "1")
            _write_setting(_UNPRIVILEGED_PORTS, "0")
            self._netlink.add_pod_link(self._count, self._bridge, opened[sys.CLONE_NEWNET])
            self._set_up_inside(address)
        except OSError:
            self.remove_pod(Sandbox(address, opened, user))
            raise
        finally:
            for flag in (sys.CLONE_NEWNET,) if self._maps else self._own:
                sys.setns(self._own[flag], flag)
        return Sandbox(address, opened, user)

    def _try_user_namespace(self) -> None:
        try:
            user, opened = _make_owned_namespaces(self._maps)
        except OSError as error:
            self._maps = {}  # pods do without
            self.reason = f"pods share a user namespace with the host: {error.strerror or error}"
        else:
            self.remove_pod(Sandbox("", opened, user))

    def _set_up_inside(self, address: str) -> None:
        inside = Netlink()
        try:
            inside.set_up(LOOPBACK_INDEX)
            inside.set_up(POD_LINK_INDEX)
            inside.add_address(address, _POD_BITS)
            inside.add_default_route(self.gateway)
        finally:
            inside.close()

    def open_socket(self, sandbox: Sandbox, kind: int = socket.SOCK_STREAM) -> int:
        sys.setns(sandbox.namespaces[sys.CLONE_NEWNET], sys.CLONE_NEWNET)
        try:
            return super().open_socket(sandbox, kind)
        finally:
            sys.setns(self._own[sys.CLONE_NEWNET], sys.CLONE_NEWNET)


def _write_setting(path: str, value: str) -> None:
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        file.write(value.encode())


def _open_namespaces(process: int | str = "self") -> dict[int, int]:
    return {kind: open_namespace(process, name) for kind, name in _NAMESPACES.items()}


def open_namespace(process: int | str, name: str) -> int:
    """Open a namespace of a process, named as in /proc."""
    return os.open(f"/proc/{process}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)


def _identity_maps() -> dict[str, bytes]:
    """Id maps in which each id means itself, so that files keep their owners."""
    maps = {}
    for name in ("gid_map", "uid_map"):
        with open(f"/proc/self/{name}") as file:
            extents = [line.split() for line in file]
        text = "".join(f"{inside} {inside} {count}\n" for inside, _, count in extents)
        maps[name] = text.encode()
    return maps


# A pod's namespaces belong to its own user namespace, where its root may rule (decision 73).
def _make_owned_namespaces(maps: dict[str, bytes]) -> tuple[int, dict[int, int]]:
    """Make a user namespace, and a pod's namespaces that belong to it.

    A child makes them, and is killed once they are open: a process cannot come back from a user
    namespace. ``maps`` are those of :func:`_identity_maps`.
    """
    pid = sys.clone_idle(sys.CLONE_NEWUSER | sum(_NAMESPACES))
    try:
        for name, text in maps.items():
            fd = os.open(f"/proc/{pid}/{name}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, text)
            finally:
                os.close(fd)
        return open_namespace(pid, "user"), _open_namespaces(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def prepare(mode: str) -> PodNetwork:
    """Move this process into the cluster's namespaces, as far as ``mode`` and the host permit."""
    if mode == "plain":
        return PodNetwork("asked for")
    kind: Kind = "root"
    try:
        try:
            sys.unshare(_CLUSTER_NAMESPACES)
        except PermissionError:
            kind = "rootless"
            enter_user_namespace()
            sys.unshare(_CLUSTER_NAMESPACES)
        sys.mount("", "/", "", sys.MS_REC | sys.MS_SLAVE)
        # Mounts made here from now on propagate to container inits that are forked already.
        sys.mount("", "/", "", sys.MS_REC | sys.MS_SHARED)
        return NamespaceNetwork(kind)
    except OSError as error:
        if mode == "namespaces":
            raise
        return PodNetwork(f"namespaces are not permitted here ({error.strerror or error})")


def enter_user_namespace() -> None:
    """Enter a user namespace with our own ids, so that programs find their home and files."""
    user, group = os.geteuid(), os.getegid()
    sys.prctl(sys.PR_SET_DUMPABLE, 1)  # otherwise /proc/self/uid_map belongs to root
    sys.unshare(sys.CLONE_NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("gid_map", f"{group} {group} 1"),
        ("uid_map", f"{user} {user} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def last_capability() -> int:
    with open("/proc/sys/kernel/cap_last_cap") as file:
        return int(file.read())
