"""The relays' event loop: descriptors, deferred calls, and what is done every second."""

from __future__ import annotations

import contextlib
import select
import time
import traceback
from collections.abc import Callable
from functools import partial

from trainyard.podruntime.event_loop import log

IN, OUT = select.EPOLLIN, select.EPOLLOUT
BOTH_ONCE = IN | OUT | select.EPOLLRDHUP | select.EPOLLET
"""Edge-triggered: called on changes, not for as long as a state lasts."""
READABLE = IN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
WRITABLE = OUT | select.EPOLLHUP | select.EPOLLERR
_AT_ONCE = 256
_TICK_SECONDS = 1.0
_MAX_LOGGED_DEFECTS = 100
"""How many defects are logged: enough to see what is wrong."""

Handler = Callable[[int], None]
"""Called with the events."""


class RelayLoop:
    """Calls handlers until the process ends; one that fails affects no other."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._soon: list[Callable[[], None]] = []
        self._ticks: list[Callable[[float], None]] = []
        self._defects = 0

    def watch(self, fd: int, handler: Handler, events: int = IN) -> None:
        self._epoll.register(fd, events)
        self._handlers[fd] = handler

    def unwatch(self, fd: int) -> None:
        """Stop watching. Must be called before the descriptor is closed."""
        if self._handlers.pop(fd, None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    def call_soon(self, action: Callable[[], None]) -> None:
        """Call ``action`` once other handlers have had their turn."""
        self._soon.append(action)

    def every_second(self, tick: Callable[[float], None]) -> None:
        """Call ``tick`` with the monotonic time about once a second."""
        self._ticks.append(tick)

    def run(self) -> None:
        """Serve for ever; a handler that fails ends nothing but itself."""
        due = time.monotonic() + _TICK_SECONDS
        while True:
            ready = self._epoll.poll(0 if self._soon else _TICK_SECONDS, _AT_ONCE)
            expected = [(fd, events, self._handlers.get(fd)) for fd, events in ready]
            for fd, events, handler in expected:
                # A handler may have closed a descriptor, and opened another of the same number.
                if handler is not None and handler is self._handlers.get(fd):
                    try:
                        handler(events)
                    except Exception:
                        self._log_defect()
            waiting, self._soon = self._soon, []
            for action in waiting:
                self._run_catching(action)
            if (now := time.monotonic()) >= due:
                due = now + _TICK_SECONDS
                for tick in self._ticks:
                    self._run_catching(partial(tick, now))

    def _run_catching(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:
            self._log_defect()

    def _log_defect(self) -> None:
        self._defects += 1
        if self._defects <= _MAX_LOGGED_DEFECTS:
            log(f"the relay to the outside: a defect: {traceback.format_exc()}")
