"""SPDY/3.1 framing, server side: what kubectl's exec (to 1.29) and port-forward still speak.

Only what its client library (moby/spdystream) uses: streams opened by the client, data, half
close, reset, ping, go-away. That library knows no flow control, so there is none here.
https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language "
    "accept-ranges age allow authorization cache-control connection content-base "
    "content-encoding content-language content-length content-location content-md5 "
    "content-range content-type date etag expect expires from host if-match if-modified-since "
    "if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer "
    "transfer-encoding upgrade user-agent vary via warning www-authenticate method get status"
)
_TAIL = (
    b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    b"203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    b"401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    b"503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, "
    b"Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    b"application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch"
    b"charset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
_LATER_WORDS = ("version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
_ALL_WORDS = (*_WORDS.split(), "200 OK", *_LATER_WORDS)
DICTIONARY = b"".join(struct.pack(">I", len(word)) + word.encode() for word in _ALL_WORDS) + _TAIL
"""The preset dictionary of header compression (section 2.6.10.1)."""

_VERSION = 0x8003
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN = 1
_CANCEL = 5
_MAX_FRAME_BYTES = 1 << 20
_MAX_HEADER_BYTES = 64 << 10
"""Of one stream, inflated: a block of a frame's size can stand for a thousand times as much."""
_MAX_STREAMS = 1000
"""Open at once on one connection."""
_CHUNK = 32 << 10
_QUEUED_CHUNKS = 64
"""Chunks that wait for a stream's reader before the connection is read no further."""


class Duplex(Protocol):
    """A byte stream in both directions."""

    async def read(self, count: int) -> bytes:
        """Exactly `count` bytes; raises IncompleteReadError at the end."""

    async def write(self, data: bytes) -> None:
        """Send, and wait until there is room again."""


class SpdyStream:
    """One stream that the client has opened."""

    def __init__(self, connection: SpdyConnection, number: int, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self._connection = connection
        self._number = number
        self._received: asyncio.Queue[bytes] = asyncio.Queue(_QUEUED_CHUNKS)
        self._reset = False
        self._finished = False

    async def read(self) -> bytes:
        """The next bytes; empty at the end of the stream."""
        return await self._received.get()

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), _CHUNK):
            if not self._reset:
                await self._connection.send_data(self._number, 0, data[start : start + _CHUNK])

    async def finish(self) -> None:
        """Half-close: the client reads the end of the stream."""
        if not self._finished and not self._reset:
            self._finished = True
            await self._connection.send_data(self._number, _FIN, b"")

    async def close(self) -> None:
        """Half-close, and expect nothing more from the client."""
        try:
            await self.finish()
        finally:
            self._connection.forget(self._number)

    async def deliver(self, data: bytes) -> None:
        """Bytes from the client, empty for its half-close; called by the connection."""
        if not self._reset:
            await self._received.put(data)

    def abort(self) -> None:
        """The client has reset the stream, or is gone; called by the connection."""
        self._reset = True
        while not self._received.empty():
            self._received.get_nowait()
        self._received.put_nowait(b"")


class SpdyConnection:
    """The server's end; iterate `accept()` for the streams that the client opens."""

    def __init__(self, wire: Duplex) -> None:
        self._wire = wire
        self._streams: dict[int, SpdyStream] = {}
        self._inflater = zlib.decompressobj(zdict=DICTIONARY)
        self._deflater = zlib.compressobj(zdict=DICTIONARY)
        self._sending = asyncio.Lock()

    async def accept(self) -> AsyncIterator[SpdyStream]:
        """Every stream that is opened, until the client goes away."""
        try:
            while True:
                head = await self._wire.read(8)
                word, rest = struct.unpack(">II", head)
                flags, size = rest >> 24, rest & 0xFFFFFF
                if size > _MAX_FRAME_BYTES:
                    return
                body = await self._wire.read(size) if size else b""
                if not word >> 31:
                    await self._data(word, flags, body)
                    continue
                kind = word & 0xFFFF
                if kind == _GOAWAY:
                    return
                if kind == _SYN_STREAM:
                    yield await self._open(flags, body)
                else:
                    await self._control(kind, body)
        except (asyncio.IncompleteReadError, ConnectionError, zlib.error, struct.error):
            return
        finally:
            for stream in self._streams.values():
                stream.abort()

    def forget(self, number: int) -> None:
        """A stream has ended; called by the stream."""
        self._streams.pop(number, None)

    async def send_data(self, number: int, flags: int, data: bytes) -> None:
        """Send one data frame; called by the stream."""
        head = struct.pack(">II", number, flags << 24 | len(data))
        async with self._sending:
            await self._wire.write(head + data)

    async def _send_control(self, kind: int, body: bytes) -> None:
        async with self._sending:
            await self._wire.write(struct.pack(">HHI", _VERSION, kind, len(body)) + body)

    async def _open(self, flags: int, body: bytes) -> SpdyStream:
        (number,) = struct.unpack_from(">I", body)
        if len(self._streams) >= _MAX_STREAMS or number in self._streams:
            raise ConnectionError("the client opens too many streams, or one twice")
        stream = SpdyStream(self, number, self._headers(body[10:]))
        self._streams[number] = stream
        block = self._deflater.compress(struct.pack(">I", 0))
        block += self._deflater.flush(zlib.Z_SYNC_FLUSH)
        await self._send_control(_SYN_REPLY, struct.pack(">I", number) + block)
        if flags & _FIN:
            await stream.deliver(b"")
        return stream

    async def _data(self, number: int, flags: int, body: bytes) -> None:
        stream = self._streams.get(number)
        if stream is None:
            await self._send_control(_RST_STREAM, struct.pack(">II", number, _CANCEL))
            return
        if body:
            await stream.deliver(body)
        if flags & _FIN:
            await stream.deliver(b"")

    async def _control(self, kind: int, body: bytes) -> None:
        if kind == _PING:
            await self._send_control(_PING, body)
        elif kind == _RST_STREAM:
            stream = self._streams.pop(struct.unpack_from(">I", body)[0], None)
            if stream is not None:
                stream.abort()

    def _headers(self, block: bytes) -> dict[str, str]:
        data = self._inflater.decompress(block, _MAX_HEADER_BYTES)
        if self._inflater.unconsumed_tail:
            raise ConnectionError("the headers of a stream are too large")
        (count,) = struct.unpack_from(">I", data)
        position = 4
        texts: list[str] = []
        for _ in range(2 * count):
            (size,) = struct.unpack_from(">I", data, position)
            position += 4 + size
            if position > len(data):
                raise ConnectionError("the headers of a stream end in the middle")
            texts.append(data[position - size : position].decode("latin-1"))
        return dict(zip(texts[::2], texts[1::2], strict=True))
