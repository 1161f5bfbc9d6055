"""Who is attached to a container, and is shown what it writes."""

from __future__ import annotations

import os
import select
from collections.abc import Callable

from trainyard.podruntime.loop import Loop


class Viewer:
    """A pipe that is given all that is written, to its last byte, as fast as it is read."""

    def __init__(self, fd: int, loop: Loop, changed: Callable[[], None]) -> None:
        """Takes ``fd`` over; ``changed()`` is called when it is no longer behind, or gone."""
        self._fd, self._loop, self._changed = fd, loop, changed
        self._unsent = b""
        self._is_ending = False
        os.set_blocking(fd, False)
        loop.register(fd, self._ready, lambda _: self.close())

    @property
    def is_gone(self) -> bool:
        """It has been closed."""
        return self._fd < 0

    @property
    def is_behind(self) -> bool:
        """Nothing more should be shown for now."""
        return bool(self._unsent)

    def show(self, data: bytes) -> None:
        """It gets these bytes, as soon as it can take them."""
        self._unsent += data
        self._send()

    def end(self) -> None:
        """Close it once it has everything."""
        self._is_ending = True
        self._send()

    def close(self) -> None:
        """Close it at once."""
        if self._fd >= 0:
            self._loop.unregister(self._fd)
            os.close(self._fd)
            self._fd, self._unsent = -1, b""
            self._changed()

    def _ready(self, events: int) -> None:
        if events & ~select.EPOLLOUT:  # its reader has gone; a pipe's end says nothing else
            self.close()
            return
        self._send()
        if not self._unsent:
            self._changed()

    def _send(self) -> None:
        if self._fd < 0:
            return
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._fd, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if self._is_ending and not self._unsent:
            self.close()
        else:
            self._loop.watch_writing(self._fd, bool(self._unsent))
