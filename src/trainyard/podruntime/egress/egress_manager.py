"""The shim's side of egress: opens and closes it, and starts a relay when one is needed.

While no pod speaks to the outside there is no relay. If one dies its connections are lost, and the
next packet starts another.
"""

from __future__ import annotations

import os
import socket
import time

from trainyard.podruntime import event_loop
from trainyard.podruntime.egress import tproxy_setup
from trainyard.podruntime.egress.relay_messages import RelayUpdate
from trainyard.podruntime.processes.child_channel import memory_file
from trainyard.podruntime.protocol import STARTER_DIED, SetNames, SetNetwork, packed

_DELAY_SECONDS = 1.0
_BRIDGE_SECONDS = 10.0
_WAKING_SOCKETS = ("datagrams", "caught", "questions", "long_questions")
"""Sockets whose first packet starts a relay, which then reads it."""


def _on_error(error: Exception) -> None:
    """Do nothing: the loop has logged it, and stops watching."""


class EgressManager:
    """``launcher``: the socket of the process outside; None where pods have no network of their
    own."""

    def __init__(
        self, loop: event_loop.EventLoop, launcher: socket.socket | None, gateway: str
    ) -> None:
        self._loop, self._launcher, self._gateway = loop, launcher, gateway
        self._sockets: tproxy_setup.TproxySockets | None = None
        self._ports: tuple[int, ...] = ()
        self._names: dict[str, str] = {}
        self._control: socket.socket | None = None
        self._is_wanted = False
        self._started_at = self._bridge_checked_at = 0.0
        if launcher is not None:
            self._loop.register(launcher.fileno(), lambda _: self._on_launcher_exit(), _on_error)

    def set(self, wanted: SetNetwork | SetNames) -> None:
        """Apply a request. OSError where the kernel cannot; pods then reach nothing outside."""
        if isinstance(wanted, SetNames):
            self._set_names(wanted)
        else:
            self._set_network(wanted)

    def _set_network(self, wanted: SetNetwork) -> None:
        self._ports = wanted.ports
        if not wanted.is_open:
            self.close()
        elif self._launcher is None:
            raise OSError(STARTER_DIED)
        elif self._sockets is None:
            self._sockets = tproxy_setup.open_sockets(self._gateway)
            self._wait_for_packets()
        else:
            self._send_update(RelayUpdate(ports=wanted.ports))

    def _set_names(self, wanted: SetNames) -> None:
        if wanted.is_all:
            self._names.clear()
        for key, text in wanted.changed.items():
            if text:
                self._names[key] = text
            else:
                self._names.pop(key, None)
        self._send_update(RelayUpdate(), wanted)

    def pod_removed(self, address: str) -> None:
        """End the connections of the pod that had this address."""
        self._send_update(RelayUpdate(gone=address))

    def tick(self) -> None:
        """Retry what is due; the loop calls it regularly."""
        if self._sockets is None:
            return
        now = time.monotonic()
        if now >= self._bridge_checked_at + _BRIDGE_SECONDS:
            self._bridge_checked_at = now
            tproxy_setup.disable_bridge_netfilter()
        if self._is_wanted and now >= self._started_at + _DELAY_SECONDS:
            self._is_wanted, self._started_at = False, now
            self._start()

    def close(self) -> None:
        """Keep pods from everything outside."""
        if self._sockets is None:
            return
        tproxy_setup.close()
        self._stop_waiting()
        self._is_wanted = False
        for each in self._sockets:
            each.close()
        self._sockets = None
        self._close_control()

    def stop(self) -> None:
        """Stop for good; the processes outside end with their sockets."""
        if self._launcher is not None:
            self._loop.unregister(self._launcher.fileno())
            self._launcher.close()
            self._launcher = None
        self._close_control()

    # -- the relay ----------------------------------------------------------------------------

    def _wait_for_packets(self) -> None:
        assert self._sockets is not None
        for name in _WAKING_SOCKETS:
            fd = getattr(self._sockets, name).fileno()
            self._loop.register(fd, lambda _: self._on_first_packet(), _on_error)

    def _stop_waiting(self) -> None:
        assert self._sockets is not None
        for name in _WAKING_SOCKETS:
            self._loop.unregister(getattr(self._sockets, name).fileno())

    def _on_first_packet(self) -> None:
        self._stop_waiting()
        self._is_wanted = True
        self.tick()

    def _start(self) -> None:
        assert self._launcher is not None
        assert self._sockets is not None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            self._control = ours
            self._loop.register(ours.fileno(), lambda _: self._on_relay_exit(), _on_error)
            self._send_update(RelayUpdate(ports=self._ports), SetNames(self._names, is_all=True))
            given = [theirs.fileno(), *(each.fileno() for each in self._sockets)]
            try:
                socket.send_fds(self._launcher, [b"r"], given)
            except OSError as error:
                event_loop.log(f"egress: {error}")

    def _on_relay_exit(self) -> None:
        """Handle the relay's exit: it never sends anything itself."""
        self._close_control()
        if self._sockets is not None:
            self._wait_for_packets()

    def _on_launcher_exit(self) -> None:
        assert self._launcher is not None
        event_loop.log(f"egress: {STARTER_DIED}: pods are kept to themselves")
        self.stop()
        self.close()

    def _send_update(self, update: RelayUpdate, names: SetNames | None = None) -> None:
        if self._control is None:
            return
        files = [memory_file(packed(names))] if names is not None else []
        try:
            socket.send_fds(self._control, [packed(update)], files)
        except OSError:  # it has died or hangs: its successor gets everything anew
            self._control.shutdown(socket.SHUT_RDWR)
        finally:
            for fd in files:
                os.close(fd)

    def _close_control(self) -> None:
        if self._control is not None:
            self._loop.unregister(self._control.fileno())
            self._control.close()
            self._control = None
