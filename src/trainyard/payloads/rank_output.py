"""Passes on what ranks write: whole lines, each tagged by its rank, as torch tags its tracebacks.

Ranks that share a pipe tear each other's lines, since each part of a `print` may be a write of its
own. So each rank gets a pipe of its own, and one thread writes what comes of it. Mounted into the
user's image: standard library, Python 3.8. In the text of `torchrun_program`, too, where a file of
the user's may have the name of any module that is not built in.
"""

from __future__ import annotations

import os
import time

PIECE_BYTES = 4096
"""PIPE_BUF: what Linux writes into a pipe at once, so that nobody's line falls into it."""
PARTIAL_SECONDS = 3.0
"""How long an unfinished line is held, such as of a progress bar."""
LONGEST_BYTES = 1 << 16
"""A longer line is passed on in pieces."""
RECORD = b"\x1e"
"""Begins a line that is for a program, and stays as it is."""


class TaggedLines:
    """Cuts what one rank writes into whole lines, and tags each: `[rank3]: `."""

    def __init__(self, rank: str) -> None:
        self.tag = f"[rank{rank}]: ".encode()
        self.rest = b""
        self.due = 0.0
        """When the unfinished line is passed on (monotonic seconds)."""

    def feed(self, data: bytes) -> bytes:
        """The lines that are whole by now."""
        if not self.rest:
            self.due = time.monotonic() + PARTIAL_SECONDS
        data = self.rest + data
        end = data.rfind(b"\n") + 1
        whole, self.rest = data[:end], data[end:]
        if whole and self.rest:
            self.due = time.monotonic() + PARTIAL_SECONDS
        if len(self.rest) > LONGEST_BYTES:
            whole += self.rest + b"\n"
            self.rest = b""
        return self._tagged(whole)

    def end(self) -> bytes:
        """The unfinished line, finished."""
        rest, self.rest = self.rest, b""
        return self._tagged(rest + b"\n" if rest else b"")

    def _tagged(self, lines: bytes) -> bytes:
        if not lines:
            return b""
        tag = self.tag
        text = tag + lines[:-1].replace(b"\n", b"\n" + tag) + b"\n"
        if b"\r" in text:  # a terminal writes over the tag
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\r" + tag)
        own = tag[:-1]  # as torch tags its tracebacks and what its C++ logs
        return text.replace(tag + own, own).replace(tag + RECORD, RECORD)


def write_lines(descriptor: int, lines: bytes) -> None:
    """Write whole lines in pieces of whole lines."""
    while lines:
        end = lines.rfind(b"\n", 0, PIECE_BYTES) + 1 or lines.find(b"\n") + 1
        piece, lines = lines[:end], lines[end:]
        while piece:
            piece = piece[os.write(descriptor, piece) :]


class RankOutput:
    """Reads the pipes of ranks in a thread, and writes their lines to our own output."""

    def __init__(self) -> None:
        import select
        import threading

        self._readable = select.EPOLLIN
        self._poll = select.epoll()
        self._streams: dict[int, tuple[TaggedLines, int]] = {}
        self._is_over = False
        self._wake = os.pipe()
        self._poll.register(self._wake[0], self._readable)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def pipe(self, rank: str, descriptor: int) -> int:
        """The end of a new pipe into which a rank writes what is for this descriptor of ours."""
        read, write = os.pipe()
        os.set_blocking(read, False)
        self._streams[read] = TaggedLines(rank), descriptor
        self._poll.register(read, self._readable)
        os.write(self._wake[1], b"\0")
        return write

    def drain(self) -> None:
        """Pass on all that is there, at the end."""
        self._is_over = True
        os.write(self._wake[1], b"\0")
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over:
            partial = [lines.due for lines, _ in self._streams.copy().values() if lines.rest]
            wait = max(0.0, min(partial) - time.monotonic()) if partial else None
            ready = {descriptor for descriptor, _ in self._poll.poll(wait)}
            if self._wake[0] in ready:
                os.read(self._wake[0], PIECE_BYTES)
            for descriptor in sorted(ready - {self._wake[0]}):
                self._read(descriptor)
            now = time.monotonic()
            for lines, target in self._streams.copy().values():
                if lines.rest and now >= lines.due:
                    self._write(target, lines.end())
        for descriptor, (lines, target) in sorted(self._streams.items()):
            while self._read(descriptor):
                pass
            self._write(target, lines.end())

    def _read(self, descriptor: int) -> bool:
        """Pass on some; whether there may be more."""
        lines, target = self._streams[descriptor]
        try:
            data = os.read(descriptor, LONGEST_BYTES)
        except BlockingIOError:
            return False
        self._write(target, lines.feed(data) if data else lines.end())
        if not data:
            del self._streams[descriptor]
            self._poll.unregister(descriptor)
            os.close(descriptor)
        return bool(data)

    def _write(self, target: int, lines: bytes) -> None:
        try:
            write_lines(target, lines)
        except OSError:  # nobody reads it any more; the ranks go on
            return


def shared_output() -> bool:
    """Whether what is written to standard output and error comes out at the same place."""
    first, second = os.fstat(1), os.fstat(2)
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
