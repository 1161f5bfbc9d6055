"""WebSocket (RFC 6455), server side, as kubectl ≥ 1.30 and the official clients use it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct
from collections.abc import Sequence
from contextlib import suppress

from trainyard.embedded.api_errors import bad_request
from trainyard.embedded.apiserver.http.http_messages import Request
from trainyard.embedded.apiserver.pod_access.spdy import Duplex

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_OPCODES = (_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG)
_FINAL, _MASKED, _RESERVED, _CONTROL = 0x80, 0x80, 0x70, 0x08
_MAX_MESSAGE_BYTES = 4 << 20
_MAX_FRAGMENTS = 10_000
"""Of one message: empty ones do not count by their bytes."""
_MAX_CONTROL_BYTES = 125


def negotiate(
    request: Request, spdy: str, protocols: Sequence[str], unnamed: str = ""
) -> tuple[str, list[tuple[str, str]]]:
    """The first of the WebSocket `protocols` that the client offers, and the headers of the answer.

    "" where it asks for SPDY, whose protocol is then `spdy`. With a client that offers no protocol
    by name `unnamed` is spoken, if there is one.
    """
    if request.headers.get("upgrade", "").lower() != "websocket":
        switch = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")]
        return "", [*switch, ("X-Stream-Protocol-Version", spdy)]
    header = request.headers.get("sec-websocket-protocol", "")
    offers = [each.strip() for each in header.split(",") if each.strip()]
    protocol = next((each for each in protocols if each in offers), "" if offers else unnamed)
    if not protocol:
        raise bad_request(f"none of the WebSocket protocols {offers} is spoken here")
    key = request.headers.get("sec-websocket-key", "").encode("latin-1")
    digest = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()
    return protocol, [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", digest),
        *([("Sec-WebSocket-Protocol", protocol)] if offers else []),
    ]


class _BrokenError(Exception):
    """The client violates RFC 6455; `code` is a status code of section 7.4.1."""

    def __init__(self, message: str, code: int = 1002) -> None:
        super().__init__(message)
        self.code = code


class WebSocket:
    """Messages over an upgraded connection."""

    def __init__(self, wire: Duplex) -> None:
        self._wire = wire
        self._sending = asyncio.Lock()
        self._is_closing = False

    async def receive(self) -> bytes | None:
        """The next message; None when the client closes or is gone."""
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                final, opcode, data = await self._frame()
                if opcode == _PING:
                    await self._send(_PONG, data)
                elif opcode == _CLOSE:
                    await self._answer_close(data[:2])
                    return None
                elif opcode in (_TEXT, _BINARY, _CONTINUATION):
                    if bool(parts) is not (opcode == _CONTINUATION):
                        raise _BrokenError("a message begins in the middle of another")
                    parts.append(data)
                    size += len(data)
                    if size > _MAX_MESSAGE_BYTES or len(parts) > _MAX_FRAGMENTS:
                        raise _BrokenError("the message is too large", 1009)
                    if final:
                        return b"".join(parts)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except _BrokenError as error:
            with suppress(ConnectionError):
                await self._send(_CLOSE, struct.pack(">H", error.code) + str(error).encode())
            return None

    async def send(self, data: bytes) -> None:
        await self._send(_BINARY, data)

    async def _answer_close(self, code: bytes) -> None:
        """Answer a close frame, unless it answers ours."""
        if not self._is_closing:
            await self._send(_CLOSE, code)

    async def close(self) -> None:
        """Send a close frame (code 1000); the client answers with its own."""
        self._is_closing = True
        await self._send(_CLOSE, struct.pack(">H", 1000))

    async def _send(self, opcode: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = struct.pack(">BB", _FINAL | opcode, size)
        elif size < 1 << 16:
            head = struct.pack(">BBH", _FINAL | opcode, 126, size)
        else:
            head = struct.pack(">BBQ", _FINAL | opcode, 127, size)
        async with self._sending:
            await self._wire.write(head + data)

    async def _frame(self) -> tuple[bool, int, bytes]:
        first, second = await self._wire.read(2)
        size, opcode = second & 0x7F, first & 0x0F
        if first & _RESERVED or opcode not in _OPCODES:
            raise _BrokenError("the frame has reserved bits or an unknown opcode")
        if not second & _MASKED:
            raise _BrokenError("a client masks its frames")
        if opcode & _CONTROL and (size > _MAX_CONTROL_BYTES or not first & _FINAL):
            raise _BrokenError("a control frame is short and whole")
        if size == 126:
            (size,) = struct.unpack(">H", await self._wire.read(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", await self._wire.read(8))
        if size > _MAX_MESSAGE_BYTES:
            raise _BrokenError("the message is too large", 1009)
        mask = await self._wire.read(4)
        data = await self._wire.read(size) if size else b""
        if data:
            repeated = (mask * (size // 4 + 1))[:size]
            number = int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")
            data = number.to_bytes(size, "big")
        return bool(first & _FINAL), opcode, data


class WebSocketDuplex:
    """A byte stream carried in binary messages: how kubectl ≥ 1.31 tunnels SPDY."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._buffer = bytearray()

    async def read(self, count: int) -> bytes:
        while len(self._buffer) < count:
            message = await self._socket.receive()
            if message is None:
                raise asyncio.IncompleteReadError(bytes(self._buffer), count)
            self._buffer += message
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)
