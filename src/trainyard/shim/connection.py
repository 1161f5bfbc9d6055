"""The shim's end of its connection to the agent, and the socket where a next agent finds it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable, Iterator, Sequence

from trainyard.shim import protocol, wire

SOCKET_NAME = "shim.sock"
Serve = Callable[[protocol.Request, list[int]], tuple[protocol.Answer, list[int]]]


class AgentConnection:
    """One agent: answers its requests with ``serve``, and tells it events."""

    def __init__(self, connection: socket.socket, poll: select.epoll, serve: Serve) -> None:
        """``serve(request, attached)`` gives an answer and the descriptors to send with it."""
        connection.setblocking(False)
        self._socket = connection
        self._poll = poll
        self._serve = serve
        self._decoder = wire.Decoder()
        self._outgoing = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def tell(self, event: protocol.Event) -> None:
        self._send(protocol.event(event), [])

    def ready(self, events: int) -> bool:
        """Write and read what is possible; False when the agent is gone."""
        if events & select.EPOLLOUT:
            self._flush([])
        if not events & ~select.EPOLLOUT:
            return True
        try:
            frames = self._decoder.receive(self._socket)
        except wire.FrameError as error:
            _log(f"the agent's connection is broken: {error}")
            return False
        for frame in frames or ():
            self._answer(frame)
        return frames is not None

    def _answer(self, frame: bytes) -> None:
        """No message ends the shim: what cannot be read or done is refused with its reason."""
        number = 0
        attached: list[int] = []
        descriptors: list[int] = []
        try:
            raw = wire.parse(frame)
            number = protocol.number_of(raw)
            attached = self._decoder.take_descriptors(protocol.number_of(raw, "descriptors"))
            answer, descriptors = self._serve(protocol.read_request(raw), attached)
        except Exception as error:
            answer = protocol.Answer(error=f"{type(error).__name__}: {error}")
            _log(f"request {number}: {answer.error}")
        finally:
            for fd in attached:
                os.close(fd)
        self._send(protocol.answer(number, answer), descriptors)

    def _send(self, message: protocol.Raw, descriptors: Sequence[int]) -> None:
        if descriptors:  # must ride on the first byte of their own message
            message["descriptors"] = len(descriptors)
        self._outgoing += wire.encode(message)
        self._flush(descriptors)

    def _flush(self, descriptors: Sequence[int]) -> None:
        try:
            if descriptors:
                sent = wire.send_descriptors(self._socket, bytes(self._outgoing), descriptors)
                for fd in descriptors:
                    os.close(fd)
            else:
                sent = self._socket.send(self._outgoing) if self._outgoing else 0
            del self._outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._outgoing.clear()
            return
        wanted = select.EPOLLIN | (select.EPOLLOUT if self._outgoing else 0)
        self._poll.modify(self._socket.fileno(), wanted)


def _log(text: str) -> None:
    """Into shim.log; not through ``sys.stderr``, which may be an object of the forking process."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())


def find(folder: str) -> socket.socket | None:
    """A connection to the shim that serves ``folder``; None where none does."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _short(folder) as path:
            connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def listen(folder: str) -> socket.socket:
    """The socket in ``folder`` at which agents find the shim."""
    listener = socket.socket(socket.AF_UNIX)
    with _short(folder) as path:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener.bind(path)
    os.chmod(os.path.join(folder, SOCKET_NAME), 0o600)
    listener.listen(1)
    return listener


@contextlib.contextmanager
def _short(folder: str) -> Iterator[str]:
    """A path of the socket that fits the 107 bytes of a Unix address, however deep ``folder``."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET_NAME}"
    finally:
        os.close(fd)
