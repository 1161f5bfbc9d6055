"""A container's log as the shim writes it: a few files of limited size.

The format is that of the Container Runtime Interface: each line is ``<RFC 3339 time> stdout F
<line>``. A line longer than 16 KiB, or unfinished for a moment, is written as ``P`` (partial)
pieces. Standard output and error share one pipe, which keeps them in order.

The log is the file at its path. A full file is renamed to ``<path>.<number>``, with a number that
only grows, and a new one is begun (decision 91). Readers go by these numbers, so that neither a
rename nor a deletion costs them a line. They lock the file they read (``hold``); while there is
room, neither that file nor a later one is dropped (decision 107). If a process is killed between
the two steps, numbered files alone are a log as well.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from typing import NamedTuple

if sys.platform != "win32":  # where clients import this too
    import fcntl

PARTIAL_AFTER_SECONDS = 0.1
_PARTIAL_BYTES = 16 * 1024
_SHARE = 4


class LogLimits(NamedTuple):
    """Files hold up to ``size`` bytes each; the last ``files`` are kept, at least two.

    Files that a reader has yet to read may take ``held`` bytes more.
    """

    size: int = 10 << 20
    files: int = 5
    held: int = 2 << 30


KUBERNETES = LogLimits()
"""The kubelet's defaults of containerLogMaxSize and containerLogMaxFiles."""


def timestamp(nanoseconds: int) -> str:
    """RFC 3339 with nanoseconds, UTC."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09d}Z"


def numbers(path: str) -> list[int]:
    """Numbers of a log's rotated files, ascending: the oldest first."""
    folder, name = os.path.split(path)
    prefix, found = f"{name}.", []
    with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
        for entry in entries:
            rest = entry.name.removeprefix(prefix)
            if rest != entry.name and rest.isascii() and rest.isdecimal():
                found.append(int(rest))
    return sorted(found)


def numbered(path: str, number: int) -> str:
    """The path of a rotated file."""
    return f"{path}.{number}"


def hold(fd: int) -> None:
    """Keep a log's file, and later ones, from being dropped until ``fd`` is closed."""
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


def drop_oldest(path: str, limits: LogLimits) -> None:
    """Delete rotated files beyond the limit, up to the first that is being read."""
    known = numbers(path)
    surplus = len(known) - max(1, limits.files - 1)
    for position, number in enumerate(known[: max(0, surplus)]):
        name = numbered(path, number)
        if _is_held(name) and (surplus - position) * limits.size <= _room(path, limits):
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _is_held(name: str) -> bool:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def _room(path: str, limits: LogLimits) -> int:
    """Bytes that held files may take: never much of what the disk has left."""
    found = os.statvfs(os.path.dirname(path) or ".")
    return min(limits.held, found.f_bavail * found.f_frsize // _SHARE)


def keep_end(fd: int, limit: int) -> None:
    """Cut a file, open for reading and appending, to its last lines once it exceeds ``limit``
    bytes.

    Half of ``limit`` is kept. Anything but a regular file stays as it is.
    """
    with contextlib.suppress(OSError):
        found = os.fstat(fd)
        if found.st_size > limit and stat.S_ISREG(found.st_mode):
            end = os.pread(fd, limit // 2, found.st_size - limit // 2)
            os.ftruncate(fd, 0)
            os.write(fd, end.partition(b"\n")[2] or end)


class LogFile:
    """Appends a container's output to its log. It never raises, and never waits for room."""

    def __init__(self, path: str, limits: LogLimits = KUBERNETES) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._path, self._limits = path, limits
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size
        self._rest = b""
        self._rest_since = 0.0
        self._is_inside = False
        """Whether the last record is a piece of a line that goes on."""
        self._lost = 0
        self._why = ""

    def _open(self) -> int:
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        return os.open(self._path, flags, 0o644)

    def write(self, data: bytes) -> None:
        """Append output as lines of the kubelet's format; an open one waits for `flush`."""
        is_begun = bool(self._rest)
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        lines, self._rest = data[:end], data[end:]
        if lines or not is_begun:  # a line that keeps growing is still due
            self._rest_since = time.monotonic()
        if lines:
            prefix = _now() + b" stdout F "
            self._append(prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n", inside=False)
        if len(self._rest) >= _PARTIAL_BYTES:
            self.flush()

    @property
    def flush_at(self) -> float | None:
        """When an unfinished line is due (monotonic seconds); None without one."""
        return self._rest_since + PARTIAL_AFTER_SECONDS if self._rest else None

    def flush(self) -> None:
        if self._rest:
            self._append(_now() + b" stdout P " + self._rest + b"\n", inside=True)
            self._rest = b""

    def close(self) -> None:
        self.flush()
        os.close(self._fd)

    def _append(self, records: bytes, *, inside: bool) -> None:
        """Append records. On a full disk they are counted, since neither pod nor shim may end."""
        try:
            if self._size and self._size + len(records) > self._limits.size:
                self._rotate()
            if self._lost:
                self._write(self._mark())
                self._lost, self._is_inside = 0, False
            self._write(records)
            self._is_inside = inside
        except OSError as error:
            self._lost += len(records)
            self._why = error.strerror or ""

    def _write(self, records: bytes) -> None:
        """Write whole records, as many as fit; OSError if that is not all.

        Half a record would spoil the next one.
        """
        done = 0
        try:
            while done < len(records):
                done += os.write(self._fd, records[done:] if done else records)
        except OSError:
            done = records.rfind(b"\n", 0, done) + 1
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size + done)
            raise
        finally:
            self._size += done

    def _mark(self) -> bytes:
        """The record that stands for output that could not be written."""
        prefix = _now() + b" stdout F "
        text = f"[trainyard: about {self._lost} bytes of output are missing here: {self._why}]"
        end_of_line = prefix + b"\n" if self._is_inside else b""
        return end_of_line + prefix + text.encode() + b"\n"

    def _rotate(self) -> None:
        """Rename the full file, drop the oldest, begin a new one. On OSError all is as before."""
        known = numbers(self._path)
        number = known[-1] + 1 if known else 1
        with contextlib.suppress(FileNotFoundError):  # somebody has removed it
            os.rename(self._path, numbered(self._path, number))
        drop_oldest(self._path, self._limits)
        try:
            fd = self._open()
        except OSError:
            with contextlib.suppress(OSError):
                os.rename(numbered(self._path, number), self._path)
            raise
        os.close(self._fd)
        self._fd, self._size = fd, 0


def _now() -> bytes:
    return timestamp(time.time_ns()).encode()
