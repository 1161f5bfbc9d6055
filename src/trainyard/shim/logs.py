"""Reading a container's log as ``kubectl logs`` asks for it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO

from trainyard.shim.protocol import ContainerState, from_raw

_FOLLOW_SECONDS = 0.05
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class LogOptions:
    """``since`` is a time; a limit of None means no limit. Sizes in bytes."""

    follow: bool = False
    tail: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    limit: int | None = None


async def read_log(
    path: str, options: LogOptions, is_over: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Chunks of the log at ``path``; with ``follow`` until ``is_over()`` and all is read."""
    formatter = _Formatter(options)
    remaining = options.limit
    with _open(path) as file:
        if options.tail is not None:
            file.seek(_tail_offset(file.fileno(), options.tail))
        while True:
            over = not options.follow or is_over()
            chunk = file.read(_CHUNK)
            if chunk:
                text = formatter.feed(chunk)
                if remaining is not None:
                    text, remaining = text[:remaining], remaining - len(text)
                if text:
                    yield text
                if remaining is not None and remaining <= 0:
                    return
                await asyncio.sleep(0)
            elif over:
                return
            else:
                await asyncio.sleep(_FOLLOW_SECONDS)


def _open(path: str) -> BinaryIO:
    return open(path, "rb")


class _Formatter:
    """Records to text. Partial records are joined, with the time of the first."""

    def __init__(self, options: LogOptions) -> None:
        since = options.since and options.since.astimezone(UTC)
        self._since = since.strftime("%Y-%m-%dT%H:%M:%S.%f").encode() if since else b""
        self._timestamps = options.timestamps
        self._rest = b""
        self._inside = False

    def feed(self, data: bytes) -> bytes:
        *records, self._rest = (self._rest + data).split(b"\n")
        result = []
        for record in records:
            stamp, _, tail = record.partition(b" ")
            _stream, _, tail = tail.partition(b" ")
            flag, _, text = tail.partition(b" ")
            if self._since and stamp < self._since:
                continue
            if self._timestamps and not self._inside:
                text = stamp + b" " + text
            self._inside = flag == b"P"
            result.append(text if self._inside else text + b"\n")
        return b"".join(result)


def _tail_offset(fd: int, lines: int) -> int:
    """Where the last ``lines`` lines begin; a line's partial records belong together."""
    size = os.fstat(fd).st_size
    if lines <= 0:
        return size
    position, tail = size, b""
    while position > 0:
        step = min(_CHUNK, position)
        position -= step
        tail = os.pread(fd, step, position) + tail
        starts = _line_starts(tail, whole=position == 0)
        if len(starts) > lines or position == 0:
            return position + (starts[-lines] if len(starts) >= lines else 0)
    return 0


def _line_starts(data: bytes, *, whole: bool) -> list[int]:
    """Offsets in ``data`` at which a line begins (not a continuation of a partial one)."""
    starts, offset, continued, known = [], 0, False, whole
    for record in data.split(b"\n")[:-1]:
        if known and not continued:
            starts.append(offset)
        fields = record.split(b" ", 3)
        continued = len(fields) > 2 and fields[2] == b"P"
        known = True
        offset += len(record) + 1
    return starts


def last_lines(path: str, lines: int = 80, limit: int = 2048) -> str:
    """The end of a log, as the termination message (FallbackToLogsOnError) wants it."""
    # Decision 34.
    try:
        with open(path, "rb") as file:
            file.seek(_tail_offset(file.fileno(), lines))
            text = _Formatter(LogOptions()).feed(file.read())
    except OSError:
        return ""
    return text[-limit:].decode(errors="replace").strip("\n")


def exit_record(log_path: str) -> ContainerState | None:
    """What the shim wrote down when the container ended; None if it did not come to that."""
    try:
        with open(os.path.splitext(log_path)[0] + ".exit", "rb") as file:
            return from_raw(ContainerState, json.load(file))
    except (OSError, ValueError):
        return None
