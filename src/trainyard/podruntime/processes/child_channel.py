"""A child's channel to the shim: messages that the kernel signs with their sender's process id.

A socket rather than a pipe: no path in /proc opens it, a message is whole or not there, and who
writes into it is known. Whatever else arrives is junk, and ends the one container it belongs to.
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
    """What the process ``sender`` told, and the descriptors that came with it, now ours."""

    sender: int
    report: ChildReport
    descriptors: list[int]


class ChildChannel:
    """The shim's end; ``theirs`` is the child's, to be handed over."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.setblocking(False)
        self.theirs = theirs.detach()

    def fileno(self) -> int:
        """-1 once it is closed."""
        return self._socket.fileno()

    def close_theirs(self) -> None:
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    def close(self) -> None:
        self._socket.close()
        self.close_theirs()

    def send(self, descriptors: list[int]) -> None:
        """Give these to the child; raises OSError."""
        socket.send_fds(self._socket, [b"o"], descriptors)

    def receive(self) -> ReceivedReport | None:
        """The next message, None at the end; raises BlockingIOError, and ProtocolError for junk."""
        try:
            data, ancillary, flags = self._received()
        except ConnectionError:
            # The other end is closed, and something that was sent there unread. That is told once,
            # before what had been said from there: why a process cannot be forked, say.
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
            if flags & socket.MSG_CTRUNC:  # no room for the descriptors that came with it
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
    """A message of up to ``size`` bytes and what is attached to it; no bytes at the end.

    ``socket.recv_fds`` ignores its flags (Python 3.11), and programs would inherit these.
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
    """The child's side; raises OSError when the shim is gone."""
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
    """Remembered: most children tell the same."""
    limited = report._replace(error=report.error[:_ERROR_CHARACTERS])
    return json.dumps(to_raw(limited), separators=(",", ":")).encode()


def try_send_report(channel: int, report: ChildReport) -> None:
    """The same where it does not matter whether somebody still listens."""
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
