"""The shim's side of the relay: it is started, told what to forward, and replaced when it dies."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable

from trainyard.podruntime import event_loop
from trainyard.podruntime.forked_child import Child
from trainyard.podruntime.network import source_ip_sockets
from trainyard.podruntime.processes.child_channel import memory_file
from trainyard.podruntime.processes.child_tasks import Order, Progress, Relay, Surroundings
from trainyard.podruntime.protocol import SetForwards, packed
from trainyard.podruntime.zygote_client import Nursery

_DELAY_SECONDS = 1.0


class RelayProcess(Child):
    """One relay; ``lost()`` is called when it is no more."""

    def __init__(self, around: Surroundings, keeper: RelayKeeper) -> None:
        self._loop, self._open_in = keeper.loop, keeper.open_in
        self._configuration, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._configuration.setblocking(False)
        order = Order(around, relay=Relay(around.kind != "plain"))
        super().__init__(order, 0, [theirs.detach()])
        self._keeper = keeper
        self._loop.register(self._configuration.fileno(), self._asked, self.junk)

    def tell(self, forwards: SetForwards) -> bool:
        """Replace what it forwards; False if it does not take that."""
        fd = memory_file(packed(forwards))
        try:
            socket.send_fds(self._configuration, [b"f"], [fd])
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def end(self) -> None:
        self.kill(signal.SIGKILL)

    def told(self, progress: Progress, descriptors: list[int]) -> None:
        super().told(progress, descriptors)
        event_loop.log(f"relay: {progress.error}")

    def junk(self, error: Exception) -> None:
        self.end()

    def refused(self, reason: str) -> None:
        event_loop.log(f"relay: {reason}")
        self._keeper.lost(self)

    def ended(self, status: int) -> None:
        self._keeper.lost(self)

    def close(self) -> None:
        self._loop.unregister(self._configuration.fileno())
        self._configuration.close()

    def _asked(self, _: int) -> None:
        """It wants a socket in the pod from which somebody calls (see ``callers``)."""
        data = b""
        with contextlib.suppress(ConnectionError):
            data = self._configuration.recv(source_ip_sockets.LONGEST)
        if not data:  # it has died, which is told in a moment
            self._loop.unregister(self._configuration.fileno())
            return
        number, address, kind = source_ip_sockets.asked(data)
        made, is_pod = -1, True
        try:
            made = self._open_in(address, kind)
        except LookupError:
            is_pod = False
        except OSError as error:
            event_loop.log(f"relay: no socket in the pod at {address}: {error}")
        descriptors = [made] if made >= 0 else []
        try:
            with contextlib.suppress(OSError):  # it asks again, or has died
                message = source_ip_sockets.answer(number, is_pod=is_pod)
                socket.send_fds(self._configuration, [message], descriptors)
        finally:
            for fd in descriptors:
                os.close(fd)


class RelayKeeper:
    """Keeps a relay running from the first Service on, with the present forwards."""

    def __init__(
        self,
        around: Surroundings,
        nursery: Nursery,
        around_loop: event_loop.Loop,
        open_in: Callable[[str, int], int],
    ) -> None:
        """``open_in(address, kind)`` makes a socket in the pod that has the address; LookupError
        if none has."""
        self._around = around
        self._nursery = nursery
        self.loop, self.open_in = around_loop, open_in
        self._relay: RelayProcess | None = None
        self._forwards: SetForwards | None = None
        self._started_at = 0.0

    def set(self, wanted: SetForwards) -> None:
        """Replace what is forwarded."""
        if self._forwards is None and not wanted.forwards:
            return
        self._forwards = wanted
        if self._relay is None:
            self.tick()
        elif not self._relay.tell(wanted):
            self._relay.end()

    def lost(self, relay: RelayProcess) -> None:
        """It has died."""
        relay.close()
        if relay is self._relay:
            self._relay = None

    def tick(self) -> None:
        """Start a relay where there should be one, at most one a second."""
        now = time.monotonic()
        if self._relay or self._forwards is None or now < self._started_at + _DELAY_SECONDS:
            return
        self._started_at = now
        self._relay = RelayProcess(self._around, self)
        self._relay.tell(self._forwards)
        self._nursery.start(self._relay)

    def end(self) -> None:
        """For good."""
        self._forwards = None
        if self._relay is not None:
            self._relay.end()
