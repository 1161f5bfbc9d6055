"""Memory that a first process writes, copied for it while it waits for its order.

A forked process shares the zygote's memory until it writes: the first write to a page is a fault
and a copy. Three hundred of them were a third of the time from an order to its program. Which
pages those are hardly depends on the pod, so one first process tells the zygote what it has
written, just before its program starts, and the next ones have that copied ahead (decision 365).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Iterable, Iterator

from trainyard.podruntime import syscalls as sys

Range = tuple[int, int]
"""Addresses: the first, and the one behind the last."""

_PAGE = mmap.PAGESIZE
_PAGEMAP = "/proc/self/pagemap"
_ENTRY = struct.Struct("=Q")
_RANGE = struct.Struct("=QQ")
_FRAME = (1 << 55) - 1  # which page of the machine it is; 0 for who is not root of the machine
_MOST_BYTES = 1 << 16
"""What a pipe holds; of more ranges than that the rest is not told."""


class Lesson:
    """What the first process that is to tell does it with: where to, and of which memory."""

    def __init__(self, writer: int, memory: list[Range]) -> None:
        """As early as can be. Raises OSError where this process may not see it."""
        self._pagemap = os.open(_PAGEMAP, os.O_RDONLY | os.O_CLOEXEC)
        self._writer, self._memory = writer, memory
        self._before = [self._entries(*each) for each in memory]

    def tell(self) -> None:
        """Which pages this process has written until now; once."""
        found = b"".join(_RANGE.pack(*each) for each in self._written())
        with contextlib.suppress(OSError):  # nobody wants to know any more
            os.write(self._writer, found[: _MOST_BYTES - _MOST_BYTES % _RANGE.size])
        os.close(self._pagemap)
        os.close(self._writer)

    def _entries(self, start: int, end: int) -> bytes:
        size = _ENTRY.size
        return os.pread(self._pagemap, (end - start) // _PAGE * size, start // _PAGE * size)

    def _written(self) -> Iterator[Range]:
        """A page that is written is another one from then on."""
        for (start, end), entries in zip(self._memory, self._before, strict=True):
            pairs = zip(
                *map(_ENTRY.iter_unpack, (entries, self._entries(start, end))), strict=False
            )
            own = [n for n, ((before,), (now,)) in enumerate(pairs) if (before ^ now) & _FRAME]
            yield from _joined(start + number * _PAGE for number in own)


def _joined(pages: Iterable[int]) -> Iterator[Range]:
    start = end = 0
    for address in pages:
        if address != end:
            if end:
                yield start, end
            start = address
        end = address + _PAGE
    if end:
        yield start, end


class Pages:
    """The zygote's knowledge of what first processes write."""

    def __init__(self) -> None:
        self._memory: list[Range] = []
        self._needed: list[Range] = []
        self._reader = self._writer = -1
        self._can_learn = _sees_frames()
        self._lesson: Lesson | None = None

    def prepare(self) -> None:
        """Before a first process is forked: hear what was told, or have this one tell."""
        if self._needed or not self._can_learn:
            return
        if self._reader >= 0:
            self._hear()
        if not self._needed and self._reader < 0:
            self._memory = list(_writable())
            self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def _hear(self) -> None:
        try:
            told = os.read(self._reader, _MOST_BYTES)
        except BlockingIOError:
            return  # it has not had its order yet
        os.close(self._reader)
        self._reader = -1
        ranges = _RANGE.iter_unpack(told[: len(told) - len(told) % _RANGE.size])
        self._needed = [each for each in ranges if self._is_ours(*each)]

    def _is_ours(self, start: int, end: int) -> bool:
        return start < end and any(low <= start and end <= high for low, high in self._memory)

    def leave(self) -> None:
        """In the zygote, after it has forked."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def begin(self) -> None:
        """In the child, first of all: copy what is known to be needed, or look what there is."""
        for start, end in self._needed:
            if not sys.copy_ahead(start, end):
                break
        if self._writer >= 0:
            try:
                self._lesson = Lesson(self._writer, self._memory)
            except OSError:
                os.close(self._writer)

    def take(self) -> Lesson | None:
        """In the child: what to tell with, if it is to; keep nothing else."""
        if self._reader >= 0:
            os.close(self._reader)
        return self._lesson


def _sees_frames() -> bool:
    """Whether this process is told which pages it has; root of a container may not be."""
    with contextlib.suppress(OSError), open(_PAGEMAP, "rb", buffering=0) as file:
        start, end = next(_writable())
        file.seek(start // _PAGE * _ENTRY.size)
        entries = file.read((end - start) // _PAGE * _ENTRY.size)
        return any(entry & _FRAME for (entry,) in _ENTRY.iter_unpack(entries))
    return False


def _writable() -> Iterator[Range]:
    """Private memory of this process that it may write, its stack left out."""
    with open("/proc/self/maps", "rb") as file:
        for line in file:
            place, rights, *_ = line.split(b" ", 2)
            if rights == b"rw-p" and not line.endswith(b"[stack]\n"):
                start, _, end = place.partition(b"-")
                yield int(start, 16), int(end, 16)
