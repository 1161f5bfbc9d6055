"""The egress relay: a process in the machine's namespaces that connects on behalf of pods.

It is a fresh interpreter without capabilities that holds nothing of the cluster but the transparent
sockets. What pods can use of it is bounded, each and together. It ends with the socket over which
the shim sends updates.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import sys as python
from typing import NoReturn

from trainyard.podruntime import syscalls as sys
from trainyard.podruntime.egress.dns.cluster_zone import ClusterZone
from trainyard.podruntime.egress.dns.dns_resolver import Resolver
from trainyard.podruntime.egress.egress_policy import EgressPolicy, PodQuota, Routes
from trainyard.podruntime.egress.relay_loop import RelayLoop
from trainyard.podruntime.egress.relay_messages import RelayUpdate
from trainyard.podruntime.egress.spoofed_replies import SpoofedReplies
from trainyard.podruntime.egress.tcp_connector import TcpConnector
from trainyard.podruntime.egress.tcp_streams import TcpStreams
from trainyard.podruntime.egress.tproxy_setup import TproxySockets
from trainyard.podruntime.egress.udp_forwarder import UdpForwarder
from trainyard.podruntime.processes.child_channel import receive_descriptors
from trainyard.podruntime.protocol import SetNames, from_raw

_MESSAGE_BYTES = 1 << 20
_CONNECTIONS, _ASSOCIATIONS, _LOOKUPS = (2048, 8192), (512, 4096), (256, 2048)
"""Limits for a pod and for all: fewer where few files may be open; no pod has more than half."""
_CONNECTION_DESCRIPTORS = 6
"""Descriptors: two ends, and two pipes while bytes are in flight."""


class EgressRelay:
    """The whole relay; ``control`` brings messages of type ``RelayUpdate``."""

    def __init__(self, sockets: TproxySockets, control: socket.socket, open_files: int) -> None:
        for each in sockets:
            each.setblocking(False)
        loop = self._loop = RelayLoop()
        replies, streams = SpoofedReplies(sockets.replies), TcpStreams(loop)
        connections = _quota(_CONNECTIONS, open_files * 3 // 4 // _CONNECTION_DESCRIPTORS)
        associations = _quota(_ASSOCIATIONS, open_files // 8)
        lookups = _quota(_LOOKUPS, open_files // 16)
        self._streams = streams
        policy = self._policy = EgressPolicy(Routes())
        opening = sockets.caught, sockets.streams, sockets.again
        self._connecting = TcpConnector(*opening, loop, replies, streams, connections, policy)
        self._datagrams = UdpForwarder(loop, replies, associations, policy)
        self._datagrams.listen_on(sockets.datagrams)
        questions = sockets.questions, sockets.long_questions
        self._zone = ClusterZone()
        self._resolver = Resolver(*questions, loop, self._zone, lookups, connections)
        self._control = control
        self._on_update(0)  # blocks: no connection before the first update says which are allowed
        control.setblocking(False)
        loop.watch(control.fileno(), self._on_update)

    def _on_update(self, _: int) -> None:
        try:
            data, descriptors = receive_descriptors(self._control, _MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            os._exit(0)
        update = from_raw(RelayUpdate, json.loads(data))
        if update.ports is not None:
            self._policy.ports = frozenset(update.ports)
        if update.gone:
            pod = socket.inet_aton(update.gone)
            self._connecting.forget_pod(pod)
            self._datagrams.forget_pod(pod)
            self._streams.forget_pod(pod)
            self._resolver.forget_pod(pod)
        for fd in descriptors:
            with open(fd, "rb") as file:
                self._zone.set(from_raw(SetNames, json.loads(file.read())))

    def run(self) -> None:
        self._loop.run()


def _quota(wanted: tuple[int, int], possible: int) -> PodQuota:
    each, total = wanted
    return PodQuota(min(each, possible // 2), min(total, possible))


def main() -> NoReturn:
    """Argument: descriptors of the control socket and the transparent sockets, with commas."""
    sys.find_arguments()
    sys.set_process_name("egress-relay")
    sys.prctl(sys.PR_SET_DUMPABLE, 0)
    sys.prctl(sys.PR_SET_NO_NEW_PRIVS, 1)
    sys.limit_capabilities(0)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    control, *opened = [socket.socket(fileno=int(fd)) for fd in python.argv[2].split(",")]
    relay = EgressRelay(TproxySockets(*opened), control, limit if limit > 0 else 1 << 20)
    gc.freeze()
    relay.run()
    os._exit(1)
