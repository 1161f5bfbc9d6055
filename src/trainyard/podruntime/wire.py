"""Frames between agent and shim: length-prefixed JSON, with file descriptors riding along.

Also here: the shim's end of the connection, and the socket at which the next agent finds the shim.
Both ends trust only their own user; the socket lies in the state folder. A frame that is not a JSON
object is refused alone. An impossible length means that the stream is out of step, and ends the
connection. The messages are in ``protocol``.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from trainyard.podruntime import limit_errors, protocol
from trainyard.podruntime.event_loop import EventLoop, log
from trainyard.podruntime.protocol import ProtocolError, Raw

SOCKET_NAME = "shim.sock"
MEMORY = "memory"
"""A folder of the state folder: a tmpfs that goes with the shim, where it may mount one."""
Serve = Callable[[protocol.Request, list[int]], tuple[protocol.Answer, list[int]]]
_HEADER = struct.Struct("=I")
_MAX_DESCRIPTORS = 8
_CHUNK = 1 << 16
_MAX_ATTACHED = 16
MAX_FRAME = 1 << 26
"""In bytes. Longer messages are neither sent nor read; a program's arguments are far below."""


class FrameError(OSError):
    """The stream is out of step: nothing after this can be understood."""


def encode(message: Raw) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return _HEADER.pack(len(body)) + body


def parse(frame: bytes) -> Raw:
    """Parse a frame's JSON object; raises ProtocolError."""
    try:
        parsed = json.loads(frame)
    except ValueError as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise ProtocolError("not a JSON object")
    return parsed


class Decoder:
    """Cuts a byte stream into frames, and hands out descriptors in the order they came.

    Those of one message arrive together, or only some of them where too many files are open.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._attached: deque[list[int]] = deque()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that these bytes make whole; raises FrameError for one beyond MAX_FRAME."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer)
            if length > MAX_FRAME:
                raise FrameError(f"a frame of {length} bytes")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[_HEADER.size : end]))
            del self._buffer[:end]
        return frames

    def receive(self, connection: socket.socket) -> list[bytes] | None:
        """Read the frames that are there; None at the end of the stream."""
        space = socket.CMSG_LEN(_MAX_DESCRIPTORS * array.array("i").itemsize)
        try:
            data, ancillary, _, _ = connection.recvmsg(_CHUNK, space, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
                self._attached.append(list(fds))
        if len(self._attached) > _MAX_ATTACHED:
            raise FrameError("descriptors that no message speaks of")
        return self.feed(data) if data else None

    def take_descriptors(self, count: int) -> list[int]:
        """The descriptors of the next message that has any; ProtocolError unless there are
        ``count``."""
        if not count:
            return []
        parsed = self._attached.popleft() if self._attached else []
        if len(parsed) != count:
            for fd in parsed:
                os.close(fd)
            raise ProtocolError(
                f"{len(parsed)} of {count} descriptors arrived; the limit of open files may be "
                "reached (ulimit -n)"
            )
        return parsed

    def close(self) -> None:
        """Close descriptors that nobody has taken."""
        while self._attached:
            for fd in self._attached.popleft():
                os.close(fd)


class SendQueue:
    """Frames still to be sent, each with the descriptors that ride on its first byte."""

    def __init__(self) -> None:
        self._frames: deque[tuple[bytearray, list[int]]] = deque()

    def add(self, frame: bytes, descriptors: Sequence[int] = ()) -> None:
        """The descriptors are closed once they are sent, or when this is closed."""
        self._frames.append((bytearray(frame), list(descriptors)))

    def flush(self, connection: socket.socket) -> bool:
        """Send as much as fits; returns whether anything is left. OSError: the peer is gone."""
        while self._frames:
            data, descriptors = self._frames[0]
            try:
                if descriptors:
                    sent = socket.send_fds(connection, [data], descriptors)
                else:
                    sent = connection.send(data)
            except BlockingIOError:
                return True
            _close_all(descriptors)
            del data[:sent]
            if not data:
                self._frames.popleft()
        return False

    def close(self) -> None:
        """Drop what has not been sent."""
        while self._frames:
            _close_all(self._frames.popleft()[1])


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


class AgentConnection:
    """One agent: its requests are answered by ``serve``, and events are sent to it."""

    def __init__(
        self,
        connection: socket.socket,
        loop: EventLoop,
        serve: Serve,
        on_gone: Callable[[AgentConnection], None],
    ) -> None:
        """``serve(request, attached)`` returns an answer and the descriptors to send with it.

        ``on_gone`` is called when the agent has left, or the stream is broken; it has to close
        this.
        """
        connection.setblocking(False)
        self._socket = connection
        self._loop = loop
        self._serve = serve
        self._on_gone = on_gone
        self._decoder = Decoder()
        self._outgoing = SendQueue()
        loop.register(connection.fileno(), self._ready, lambda _: on_gone(self))

    def close(self) -> None:
        self._loop.unregister(self._socket.fileno())
        self._socket.close()
        self._decoder.close()
        self._outgoing.close()

    def send_event(self, event: protocol.Event, descriptors: Sequence[int] = ()) -> None:
        """The descriptors are closed once they are sent."""
        self._send(protocol.event(event), descriptors)

    def _ready(self, events: int) -> None:
        """Write and read as much as is possible."""
        if events & select.EPOLLOUT:
            self._flush()
        if not events & ~select.EPOLLOUT:
            return
        try:
            frames = self._decoder.receive(self._socket)
        except FrameError as error:
            log(f"the agent's connection is broken: {error}")
            frames = None
        for frame in frames or ():
            self._answer(frame)
        if frames is None:
            self._on_gone(self)

    def _answer(self, frame: bytes) -> None:
        """Answer a request. No message ends the shim: it is refused with the reason."""
        number = 0
        attached: list[int] = []
        descriptors: list[int] = []
        try:
            raw = parse(frame)
            number = protocol.number_of(raw)
            attached = self._decoder.take_descriptors(protocol.number_of(raw, "descriptors"))
            answer, descriptors = self._serve(protocol.read_request(raw), attached)
        except Exception as error:
            answer = protocol.Answer(error=f"{type(error).__name__}: {limit_errors.explain(error)}")
            log(f"request {number}: {answer.error}")
        finally:
            for fd in attached:
                os.close(fd)
        self._send(protocol.answer(number, answer), descriptors)

    def _send(self, message: protocol.Raw, descriptors: Sequence[int]) -> None:
        if descriptors:
            message["descriptors"] = len(descriptors)
        self._outgoing.add(encode(message), descriptors)
        self._flush()

    def _flush(self) -> None:
        try:
            is_left = self._outgoing.flush(self._socket)
        except OSError:
            self._outgoing.close()
            return
        if self._socket.fileno() >= 0:
            self._loop.watch_writing(self._socket.fileno(), is_left)


def connect(folder: str) -> socket.socket | None:
    """Connect to the shim that serves ``folder``; None where none does."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _short(folder) as path:
            connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def listen(folder: str) -> socket.socket:
    """Make the socket in ``folder`` where agents find the shim; it accepts once it exists."""
    listener = socket.socket(socket.AF_UNIX)
    with _short(folder) as path:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}.new")
        listener.bind(f"{path}.new")
        os.chmod(f"{path}.new", 0o600)
        listener.listen(1)
        os.replace(f"{path}.new", path)
    return listener


@contextlib.contextmanager
def _short(folder: str) -> Iterator[str]:
    """A path of the socket that fits into a Unix address (107 bytes), however deep the folder."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET_NAME}"
    finally:
        os.close(fd)
