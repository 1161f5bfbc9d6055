"""Reading a container's log as ``kubectl logs`` does, through all its files.

``log_files`` defines and writes them. A reader has one file open at a time and finds the next by
its number, so that rotation costs it nothing. If it falls behind by more than is kept, it says so
in a line of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from trainyard.podruntime.log_files import hold, numbered, numbers
from trainyard.podruntime.protocol import ContainerState, from_raw

MISSING = "[trainyard: output is missing here: it was rotated away before it was read]"
"""The line for output that a follower could not read in time."""

_FOLLOW_SECONDS = 0.05
# Room for several of the longest records that are written.
_CHUNK = 1 << 18
_HEAD_BYTES = 64
"""In bytes: at least the time, stream and flag before a record's text."""
_LAST_BYTES = 1 << 17
_WHOLE_LINE = re.compile(rb"^([^ \n]+) [^ \n]+ F ", re.MULTILINE)
_COARSE_SECONDS = 2.0
"""Files' modification times may be so much older than those of their records."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """``since`` is a time; a limit of None means no limit. Sizes in bytes."""

    follow: bool = False
    tail: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    limit: int | None = None


class _Position(NamedTuple):
    """A place in a log: a file's number, and the offset of a record in it."""

    number: int
    offset: int


def has_log(path: str) -> bool:
    """Whether there is a log at this path; its newest file may be missing."""
    return os.path.exists(path) or bool(numbers(path))


def logs_in(folder: Path) -> list[Path]:
    """The paths of a container's logs, whatever files they consist of."""
    found = {re.sub(r"(?<=\.log)\.\d+$", "", entry.name) for entry in folder.glob("*.log*")}
    return [folder / name for name in sorted(found) if name.endswith(".log")]


def remove(path: Path) -> None:
    """Delete a log with all its files and its exit record."""
    rotated = [numbered(str(path), number) for number in numbers(str(path))]
    for name in (*rotated, str(path), str(path.with_suffix(".exit"))):
        with contextlib.suppress(OSError):
            os.unlink(name)


def changed_at(path: Path) -> float:
    """When a log was last written to, in seconds since 1970."""
    names = [str(path), *(numbered(str(path), n) for n in numbers(str(path))[-1:])]
    for name in names:
        with contextlib.suppress(OSError):
            return os.stat(name).st_mtime
    return 0.0


async def read_log(
    path: str, options: LogOptions, is_over: Callable[[], bool]
) -> AsyncGenerator[bytes]:
    """Yield the log at ``path`` in chunks; with ``follow`` until ``is_over()`` and all is read.

    Without it, up to the present end. FileNotFoundError if there is no log.
    """
    formatter = _Formatter(options)
    remaining = options.limit
    files = _LogFiles(path)
    try:
        end = None if options.follow else files.end()
        for _ in _go_to_start(files, options):
            await asyncio.sleep(0)  # give other tasks a turn
        while True:
            over = not options.follow or is_over()
            if records := files.read(end):
                text = formatter.feed(records)
                if files.has_gap:
                    files.has_gap = False
                    text = formatter.gap() + text
                if remaining is not None:
                    text, remaining = text[:remaining], remaining - len(text)
                if text:
                    yield text
                if remaining is not None and remaining <= 0:
                    return
                await asyncio.sleep(0)
            elif not files.go_to_next(end):
                if over:
                    return
                await asyncio.sleep(_FOLLOW_SECONDS)
    finally:
        files.close()


def _go_to_start(files: _LogFiles, options: LogOptions) -> Iterator[None]:
    """Go to where reading begins; yields now and then, since it can take long."""
    if options.tail is not None:
        yield from files.go_back_lines(options.tail)
    else:
        files.go_to_first(0.0 if options.since is None else options.since.timestamp())


class _LogFiles:
    """The files of one log, of which one is open, and the position of the next record."""

    def __init__(self, path: str) -> None:
        """Open the newest file; FileNotFoundError if there is no log."""
        self._path = path
        self._fd = -1
        self._offset = 0
        self._number = 0
        self._is_rotated = False
        self.has_gap = False
        """Whether files between the last one and this are gone."""
        self._open_newest()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def end(self) -> _Position:
        """The present end of the newest file, which has just been opened."""
        return _Position(self._number, os.fstat(self._fd).st_size)

    # -- which file ---------------------------------------------------------------------------

    def _switch_to(self, fd: int, number: int) -> None:
        hold(fd)  # before the previous file is closed, so that none between them is dropped
        self.close()
        self._fd, self._number, self._offset, self._is_rotated = fd, number, 0, False

    def _open_newest(self) -> None:
        while True:
            known = numbers(self._path)
            newest = known[-1] if known else 0
            if self._open_current(newest + 1):
                return
            if numbers(self._path) == known:  # the current one is not there
                if not newest:
                    raise FileNotFoundError(self._path)
                if self._open_numbered(newest):
                    return

    def _open_numbered(self, number: int) -> bool:
        try:
            fd = os.open(numbered(self._path, number), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        self._switch_to(fd, number)
        return True

    def _open_current(self, number: int) -> bool:
        """Open the file that is not renamed yet, if its number will be ``number``."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        # Numbers only grow: if its predecessor is the newest now, it was so when this was opened.
        known = numbers(self._path)
        if (known[-1] if known else 0) != number - 1:
            os.close(fd)
            return False
        self._switch_to(fd, number)
        return True

    def go_to_next(self, end: _Position | None) -> bool:
        """Go to the next file at the end of this one; False if there is none (yet)."""
        if end is not None and self._number >= end.number:
            return False
        if self._is_current():
            return False
        known = numbers(self._path)
        if not known or known[-1] < self._number:
            return False
        if not self._is_rotated:
            self._is_rotated = True  # nothing more is written to it: read its rest once more
            return True
        wanted = max(self._number + 1, known[0])
        if wanted > known[-1]:
            return self._open_current(wanted)
        is_gap = wanted > self._number + 1
        if not self._open_numbered(wanted):
            return True  # gone just now: look again
        self.has_gap = is_gap
        return True

    def _is_current(self) -> bool:
        try:
            found, own = os.stat(self._path), os.fstat(self._fd)
        except FileNotFoundError:
            return False
        return (found.st_ino, found.st_dev) == (own.st_ino, own.st_dev)

    # -- where in it --------------------------------------------------------------------------

    def read(self, end: _Position | None) -> bytes:
        """The next whole records, not beyond ``end``; none at the end of the file."""
        size = _CHUNK
        if end is not None and self._number >= end.number:
            size = min(size, end.offset - self._offset) if self._number == end.number else 0
        data = os.pread(self._fd, max(0, size), self._offset)
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) == _CHUNK:
            whole = len(data)  # not a log of ours: do not wait for the end of a record
        self._offset += whole
        return data[:whole]

    def go_to_first(self, since: float) -> None:
        """Go to the first file that was written after ``since`` (seconds since 1970)."""
        for number in numbers(self._path):
            with contextlib.suppress(FileNotFoundError):
                if os.stat(numbered(self._path, number)).st_mtime < since - _COARSE_SECONDS:
                    continue
            if number >= self._number or self._open_numbered(number):
                return

    def go_back_lines(self, lines: int, budget: int | None = None) -> Iterator[None]:
        """Go back from the end by ``lines`` lines, or about ``budget`` bytes; yields after each
        block.

        A line's pieces belong together, even across files.
        """
        self._offset = _end_of_records(self._fd)
        found = walked = 0
        while lines > 0:
            is_last = True
            for block in _records_backward(self._fd, self._offset):
                for offset, is_end in block:
                    if is_end and not is_last:
                        found += 1  # the record that follows begins a line
                        if found == lines:
                            return
                    is_last, walked, self._offset = False, walked + self._offset - offset, offset
                if budget is not None and walked > budget:
                    return
                yield
            before = self._open_previous()
            if before is None:
                return
            fd, is_end = before
            if is_end and not is_last:
                found += 1
                if found == lines:
                    os.close(fd)
                    return
            self._switch_to(fd, self._number - 1)
            self._offset = _end_of_records(fd)

    def _open_previous(self) -> tuple[int, bool] | None:
        """Open the file before this one, and whether a line ends with it; None if it is gone."""
        try:
            fd = os.open(numbered(self._path, self._number - 1), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        for block in _records_backward(fd, _end_of_records(fd)):
            if block:
                return fd, block[0][1]
        return fd, True


def _end_of_records(fd: int) -> int:
    """The end of a file's last whole record."""
    size = os.fstat(fd).st_size
    last = os.pread(fd, _CHUNK, max(0, size - _CHUNK))
    return size - (len(last) - last.rfind(b"\n") - 1)


def _records_backward(fd: int, end: int) -> Iterator[list[tuple[int, bool]]]:
    """Offsets of the records before ``end``, block by block, the last one first.

    With each, whether a line ends with it.
    """
    position, after = end, b""
    while position > 0:
        step = min(_CHUNK, position)
        position -= step
        data = os.pread(fd, step, position) + after
        found, newline = [], data.rfind(b"\n", 0, step)
        while newline >= 0:
            if position + newline + 1 < end:
                found.append((position + newline + 1, _ends_line(data, newline + 1)))
            newline = data.rfind(b"\n", 0, newline)
        if not position:
            found.append((0, _ends_line(data, 0)))
        after = data[:_HEAD_BYTES]
        yield found


def _ends_line(data: bytes, start: int) -> bool:
    fields = data[start : start + _HEAD_BYTES].split(b" ", 3)
    return len(fields) < 3 or fields[2] != b"P"


class _Formatter:
    """Turns records into text. Partial records are joined, with the time of the first."""

    def __init__(self, options: LogOptions) -> None:
        since = options.since and options.since.astimezone(UTC)
        self._since = since.strftime("%Y-%m-%dT%H:%M:%S.%f").encode() if since else b""
        self._timestamps = options.timestamps
        self._inside = False
        self._stamp = b""

    def feed(self, records: bytes) -> bytes:
        """The text of whole records."""
        if not self._inside and not self._since:
            template = rb"\1 " if self._timestamps else b""
            text, count = _WHOLE_LINE.subn(template, records)
            if count == records.count(b"\n") and records.endswith(b"\n"):
                start = records.rfind(b"\n", 0, -1) + 1
                self._stamp = records[start : records.index(b" ", start)]
                return text
        return self._feed_each(records)

    def _feed_each(self, records: bytes) -> bytes:
        result = []
        for record in records.removesuffix(b"\n").split(b"\n"):
            stamp, _, tail = record.partition(b" ")
            _stream, _, tail = tail.partition(b" ")
            flag, _, text = tail.partition(b" ")
            if self._since and stamp < self._since:
                continue
            if self._timestamps and not self._inside:
                text = stamp + b" " + text
            self._inside, self._stamp = flag == b"P", stamp
            result.append(text if self._inside else text + b"\n")
        return b"".join(result)

    def gap(self) -> bytes:
        """A line that stands for missing output, with the time of what came before."""
        end_of_line = b"\n" if self._inside else b""
        self._inside = False
        stamp = self._stamp + b" " if self._timestamps and self._stamp else b""
        return end_of_line + stamp + MISSING.encode() + b"\n"


def last_lines(path: str, lines: int = 80, limit: int = 2048) -> str:
    """The end of a log as text: the termination message of FallbackToLogsOnError."""
    # The last 80 lines or 2 KiB, as the kubelet takes them (decision 34).
    text, formatter = b"", _Formatter(LogOptions())
    with contextlib.suppress(OSError), contextlib.closing(_LogFiles(path)) as files:
        end = files.end()
        for _ in files.go_back_lines(lines, _LAST_BYTES):
            pass
        while (records := files.read(end)) or files.go_to_next(end):
            text = (text + formatter.feed(records))[-limit:] if records else text
    return text.decode(errors="replace").strip("\n")


def exit_record(log_path: str) -> ContainerState | None:
    """The shim's record of how the container ended; None if there is none."""
    try:
        with open(os.path.splitext(log_path)[0] + ".exit", "rb") as file:
            return from_raw(ContainerState, json.load(file))
    except (OSError, ValueError):
        return None
