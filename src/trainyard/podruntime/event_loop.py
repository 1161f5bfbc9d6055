"""The shim's event loop. A handler that fails ends what it served, and nothing else."""

from __future__ import annotations

import contextlib
import os
import select
import traceback
from collections.abc import Callable
from functools import partial

from trainyard.podruntime.log_files import keep_end

_LOG_BYTES = 10 << 20
Handler = Callable[[int], None]
"""Called with the ``epoll`` events."""
OnError = Callable[[Exception], None]
"""Called with what the handler raised; ends what the handler was for."""


def log(text: str) -> None:
    """Write to shim.log. Not through ``sys.stderr``, which may belong to the process that forked
    us."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode(errors="replace"))
        keep_end(2, _LOG_BYTES)


class EventLoop:
    """Waits for descriptors and calls their handlers."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._handlers: dict[int, tuple[Handler, OnError]] = {}

    def register(self, fd: int, handler: Handler, on_error: OnError) -> None:
        self._poll.register(fd, select.EPOLLIN)
        self._handlers[fd] = handler, on_error

    def watch_writing(self, fd: int, wanted: bool) -> None:
        self._poll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def unregister(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def run_once(self, seconds: float) -> bool:
        """Call the handlers that are ready within ``seconds``; False if none was."""
        ready = self._poll.poll(seconds)
        expected = {fd: self._handlers.get(fd) for fd, _ in ready}
        for fd, events in ready:
            registered = self._handlers.get(fd)
            # A handler may have closed a descriptor and opened another of the same number, which is
            # not ready: reading it would block for ever.
            if registered is not None and registered is expected[fd]:
                handler, on_error = registered
                if not run_catching(partial(handler, events), on_error):
                    log(f"descriptor {fd} is given up")
                    self.unregister(fd)
        return bool(ready)


def run_catching(action: Callable[[], None], on_error: OnError) -> bool:
    """Run ``action``; on an exception log it and call ``on_error``. False if that raises too."""
    try:
        try:
            action()
        except Exception as error:
            log(f"a defect: {''.join(traceback.format_exception(error))}")
            on_error(error)
    except Exception:
        log(f"a defect: {traceback.format_exc()}")
        return False
    return True
