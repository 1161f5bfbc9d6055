"""Asks a gRPC server for its health (grpc.health.v1), as a kubelet's probe does.

One call on one connection: what of HTTP/2 (RFC 9113) and HPACK (RFC 7541) that takes. Heads of
answers are not decoded; an answer without a message has failed, whatever its status says
(decision 342).
https://github.com/grpc/grpc/blob/master/doc/health-checking.md
"""

from __future__ import annotations

from asyncio import IncompleteReadError, StreamReader, StreamWriter

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM = _ACK = 1
_END_HEADERS, _PADDED = 4, 8
_STREAM = 1
_METHOD = b"/grpc.health.v1.Health/Check"
_STATES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_SERVING = "SERVING"
_MOST_FRAMES = 64
_MOST_BYTES = 16384
"""Of a frame, as long as one has not said that one takes more."""


async def check_health(
    reader: StreamReader, writer: StreamWriter, authority: str, service: str
) -> str:
    """What is wrong with a service, "" when it serves."""
    name = service.encode()
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    writer.write(_PREFACE + _frame(_SETTINGS, 0, b"", stream=0))
    writer.write(_frame(_HEADERS, _END_HEADERS, _head(authority.encode())))
    writer.write(_frame(_DATA, _END_STREAM, b"\0" + len(message).to_bytes(4, "big") + message))
    try:
        answer = await _answer(reader, writer)
    except (IncompleteReadError, ConnectionError):
        answer = None
    if answer is None:
        return "the server does not speak gRPC"
    if len(answer) < 5:  # flag and length of a message
        of = f" of {service}" if service else ""
        return f"the server does not tell the health{of} (grpc.health.v1.Health)"
    number = answer[6] if answer[5:6] == b"\x08" else 0
    state = _STATES[number] if number < len(_STATES) else str(number)
    return "" if state == _SERVING else f'service unhealthy (responded with "{state}")'


async def _answer(reader: StreamReader, writer: StreamWriter) -> bytes | None:
    """All that was sent as the answer; None from a server that ends it, or says nothing of use."""
    found = b""
    for _ in range(_MOST_FRAMES):
        head = await reader.readexactly(9)
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        if size > _MOST_BYTES:
            return None
        body = await reader.readexactly(size)
        if kind in (_RESET, _GOAWAY):
            return None
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            writer.write(_frame(kind, _ACK, body if kind == _PING else b"", stream=0))
        elif kind == _DATA:
            found += body[1 : len(body) - body[0]] if flags & _PADDED and body else body
        if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
            return found
    return None


def _frame(kind: int, flags: int, body: bytes, stream: int = _STREAM) -> bytes:
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def _head(authority: bytes) -> bytes:
    """Fields by their numbers in HPACK's static table; values that are not in it as they are."""
    fields = (
        b"\x83\x86",  # :method POST, :scheme http
        b"\x04" + _sized(_METHOD),  # :path
        b"\x01" + _sized(authority),
        b"\x0f\x10" + _sized(b"application/grpc"),  # content-type
        b"\x00" + _sized(b"te") + _sized(b"trailers"),
    )
    return b"".join(fields)


def _sized(text: bytes) -> bytes:
    """A text behind its length, which fits into seven bits."""
    return bytes((len(text),)) + text


def _varint(number: int) -> bytes:
    """As protobuf writes it."""
    low, high = number & 0x7F, number >> 7
    return bytes((low | 0x80,)) + _varint(high) if high else bytes((low,))
