"""The shim's side of the service relay: starts it, configures it, and replaces it when it dies."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable

from trainyard.podruntime import event_loop
from trainyard.podruntime.forked_child import ForkedChild
from trainyard.podruntime.network import source_ip_sockets
from trainyard.podruntime.processes.child_channel import memory_file
from trainyard.podruntime.processes.child_tasks import (
    ChildReport,
    ChildTask,
    ClusterContext,
    RelayTask,
)
from trainyard.podruntime.protocol import SetForwards, packed
from trainyard.podruntime.zygote_client import ZygoteClient

_DELAY_SECONDS = 1.0


class ServiceRelayProcess(ForkedChild):
    """A running relay; the manager is called when it exits."""

    def __init__(self, context: ClusterContext, manager: ServiceRelayManager) -> None:
        self._loop, self._open_in = manager.loop, manager.open_in
        self._configuration, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._configuration.setblocking(False)
        task = ChildTask(context, relay=RelayTask(context.kind != "plain"))
        super().__init__(task, 0, [theirs.detach()])
        self._manager = manager
        self._loop.register(
            self._configuration.fileno(), self._on_socket_request, self.on_invalid_report
        )

    def set_forwards(self, forwards: SetForwards) -> bool:
        """Replace what it forwards; False if it does not accept that."""
        fd = memory_file(packed(forwards))
        try:
            socket.send_fds(self._configuration, [b"f"], [fd])
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def kill_tree(self) -> None:
        self.kill(signal.SIGKILL)

    def on_report(self, report: ChildReport, descriptors: list[int]) -> None:
        super().on_report(report, descriptors)
        event_loop.log(f"relay: {report.error}")

    def on_invalid_report(self, error: Exception) -> None:
        self.kill_tree()

    def on_not_started(self, reason: str) -> None:
        event_loop.log(f"relay: {reason}")
        self._manager.on_relay_exit(self)

    def on_exit(self, status: int) -> None:
        self._manager.on_relay_exit(self)

    def close(self) -> None:
        self._loop.unregister(self._configuration.fileno())
        self._configuration.close()

    def _on_socket_request(self, _: int) -> None:
        """The relay asks for a socket in the client's pod (see ``source_ip_sockets``)."""
        data = b""
        with contextlib.suppress(ConnectionError):
            data = self._configuration.recv(source_ip_sockets.MAX_MESSAGE_BYTES)
        if not data:  # it has died; its exit is handled separately
            self._loop.unregister(self._configuration.fileno())
            return
        number, address, kind = source_ip_sockets.parse_request(data)
        made, is_pod = -1, True
        try:
            made = self._open_in(address, kind)
        except LookupError:
            is_pod = False
        except OSError as error:
            event_loop.log(f"relay: no socket in the pod at {address}: {error}")
        descriptors = [made] if made >= 0 else []
        try:
            with contextlib.suppress(OSError):  # it asks again, or it has died
                message = source_ip_sockets.pack_answer(number, is_pod=is_pod)
                socket.send_fds(self._configuration, [message], descriptors)
        finally:
            for fd in descriptors:
                os.close(fd)


class ServiceRelayManager:
    """Keeps a relay running, with the present forwards, from the first Service on."""

    def __init__(
        self,
        context: ClusterContext,
        zygote: ZygoteClient,
        loop: event_loop.EventLoop,
        open_in: Callable[[str, int], int],
    ) -> None:
        """``open_in(address, kind)`` opens a socket in the pod at that address; LookupError if
        none."""
        self._context = context
        self._zygote = zygote
        self.loop, self.open_in = loop, open_in
        self._relay: ServiceRelayProcess | None = None
        self._forwards: SetForwards | None = None
        self._started_at = 0.0

    def set(self, wanted: SetForwards) -> None:
        """Replace what is forwarded."""
        if self._forwards is None and not wanted.forwards:
            return
        self._forwards = wanted
        if self._relay is None:
            self.tick()
        elif not self._relay.set_forwards(wanted):
            self._relay.kill_tree()

    def on_relay_exit(self, relay: ServiceRelayProcess) -> None:
        """Handle the exit of a relay."""
        relay.close()
        if relay is self._relay:
            self._relay = None

    def tick(self) -> None:
        """Start a relay if one should run, at most one a second."""
        now = time.monotonic()
        if self._relay or self._forwards is None or now < self._started_at + _DELAY_SECONDS:
            return
        self._started_at = now
        self._relay = ServiceRelayProcess(self._context, self)
        self._relay.set_forwards(self._forwards)
        self._zygote.start(self._relay)

    def stop(self) -> None:
        """Stop the relay for good."""
        self._forwards = None
        if self._relay is not None:
            self._relay.kill_tree()
