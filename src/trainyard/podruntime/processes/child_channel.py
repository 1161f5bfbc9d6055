"""A child's channel to the shim: reports that the kernel signs with the sender's process id.

A socket rather than a pipe: no path in /proc opens it, messages arrive whole, and the sender is
known. Anything else that arrives is invalid, and ends the container it belongs to, alone (decision
71).
"""

from __future__ import annotations

import array
import contextlib
import errno
import functools
import json
import os
import socket
import struct
from typing import NamedTuple

from trainyard.podruntime.processes.child_tasks import ChildReport
from trainyard.podruntime.protocol import ProtocolError, from_raw, to_raw

_MESSAGE_BYTES = 1 << 14
_ERROR_CHARACTERS = 4096
_MAX_DESCRIPTORS = 16
_INT = array.array("i").itemsize
_CREDENTIALS = struct.Struct("=iII")
_LAST_SIGNAL = 64


class ReceivedReport(NamedTuple):
    """A report of the process ``sender``, with descriptors that are now ours."""

    sender: int
    report: ChildReport
    descriptors: list[int]


class ChildChannel:
    """The shim's end; ``theirs`` is handed to the child."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.setblocking(False)
        self.theirs = theirs.detach()

    def fileno(self) -> int:
        """-1 once closed."""
        return self._socket.fileno()

    def close_theirs(self) -> None:
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    def close(self) -> None:
        self._socket.close()
        self.close_theirs()

    def send(self, descriptors: list[int]) -> None:
        """Send descriptors to the child; raises OSError."""
        socket.send_fds(self._socket, [b"o"], descriptors)

    def receive(self) -> ReceivedReport | None:
        """The next message, or None at the end. Raises BlockingIOError, and ProtocolError if
        invalid."""
        try:
            data, ancillary, flags = self._received()
        except ConnectionError:
            # The peer closed its end with something unread. The kernel says so once, before it
            # delivers what the peer had sent: why a process cannot be forked, say.
            try:
                data, ancillary, flags = self._received()
            except ConnectionError:
                return None
        if not data and not ancillary:
            return None
        descriptors = _descriptors(ancillary)
        credentials = [data for _, kind, data in ancillary if kind == socket.SCM_CREDENTIALS]
        try:
            if flags & socket.MSG_TRUNC:
                raise ProtocolError(f"a message of more than {_MESSAGE_BYTES} bytes")
            if flags & socket.MSG_CTRUNC:  # not all descriptors could be opened here
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            sender = _CREDENTIALS.unpack(credentials[0])[0]
            return ReceivedReport(sender, _parse(data, len(descriptors)), descriptors)
        except Exception:
            for fd in descriptors:
                os.close(fd)
            raise

    def _received(self) -> tuple[bytes, list[tuple[int, int, bytes]], int]:
        space = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_MAX_DESCRIPTORS * _INT)
        data, ancillary, flags, _ = self._socket.recvmsg(
            _MESSAGE_BYTES, space, socket.MSG_CMSG_CLOEXEC
        )
        return data, ancillary, flags


def receive_descriptors(connection: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """Read a message of up to ``size`` bytes with its descriptors; no bytes at the end.

    ``socket.recv_fds`` ignores its flags (Python 3.11), so that programs would inherit them.
    """
    space = socket.CMSG_SPACE(_MAX_DESCRIPTORS * _INT)
    data, ancillary, _, _ = connection.recvmsg(size, space, socket.MSG_CMSG_CLOEXEC)
    return data, _descriptors(ancillary)


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for _, kind, payload in ancillary:
        if kind == socket.SCM_RIGHTS:
            found.frombytes(payload[: len(payload) - len(payload) % _INT])
    return list(found)


def _parse(data: bytes, descriptors: int) -> ChildReport:
    try:
        report = from_raw(ChildReport, json.loads(data))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"{error}") from None
    if not 0 <= (report.code or 0) <= 255 or not 0 <= report.signal <= _LAST_SIGNAL:
        raise ProtocolError("an exit code that cannot be")
    if descriptors != report.terminal:
        raise ProtocolError(f"{descriptors} descriptors instead of {report.terminal:d}")
    return report


def send_report(channel: int, report: ChildReport, descriptor: int = -1) -> None:
    """Send a report from the child; raises OSError when the shim is gone."""
    data = encode_report(report)
    if descriptor < 0:
        os.write(channel, data)
        return
    end = socket.socket(fileno=channel)
    try:
        socket.send_fds(end, [data], [descriptor])
    finally:
        end.detach()


@functools.cache
def encode_report(report: ChildReport) -> bytes:
    """The report as it is sent. Cached: most children send the same few."""
    limited = report._replace(error=report.error[:_ERROR_CHARACTERS])
    return json.dumps(to_raw(limited), separators=(",", ":")).encode()


def try_send_report(channel: int, report: ChildReport) -> None:
    """Send a report, and ignore that the shim may be gone."""
    with contextlib.suppress(OSError):
        send_report(channel, report)


def memory_file(data: bytes) -> int:
    """A memory file with ``data``, to be read from its beginning. The caller closes it."""
    fd = os.memfd_create("message", os.MFD_CLOEXEC)
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
