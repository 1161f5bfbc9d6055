"""Container output to log files, in the format of the Container Runtime Interface.

Each line becomes ``<RFC 3339 time> stdout F <line>``; a line longer than 16 KiB, or one that has
stood unfinished for a moment, is written as ``P`` (partial) pieces. Standard output and error
share one pipe, which keeps them in the order in which they were written.
"""

from __future__ import annotations

import contextlib
import os
import time

READ_BYTES = 1 << 16
PARTIAL_AFTER_SECONDS = 0.1
_PARTIAL_BYTES = 16 * 1024


def timestamp(nanoseconds: int) -> str:
    """RFC 3339 with nanoseconds, UTC."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09d}Z"


class LogFile:
    """Appends what a container writes to its log."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._rest = b""
        self._rest_since = 0.0

    def write(self, data: bytes) -> None:
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        lines, self._rest = data[:end], data[end:]
        self._rest_since = time.monotonic()
        now = timestamp(time.time_ns()).encode()
        if lines:
            prefix = now + b" stdout F "
            self._append(prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n")
        if len(self._rest) >= _PARTIAL_BYTES:
            self.flush()

    @property
    def flush_at(self) -> float | None:
        """When the unfinished line is due (monotonic seconds); None without one."""
        return self._rest_since + PARTIAL_AFTER_SECONDS if self._rest else None

    def flush(self) -> None:
        if self._rest:
            now = timestamp(time.time_ns()).encode()
            self._append(now + b" stdout P " + self._rest + b"\n")
            self._rest = b""

    def close(self) -> None:
        self.flush()
        os.close(self._fd)

    def _append(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk must not end the pod, nor the shim
            while data:
                data = data[os.write(self._fd, data) :]
