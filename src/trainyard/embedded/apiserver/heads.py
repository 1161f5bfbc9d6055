"""The heads of answers, and the target in that of a request."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from trainyard.embedded.apiserver.messages import Stream

_REASONS = {status.value: status.phrase for status in HTTPStatus}
_Headers = Sequence[tuple[str, str]]


def of_answer(status: int, content_type: str, headers: _Headers, keep_alive: bool) -> bytes:
    """The head of an answer; its length is in `headers`."""
    text = f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\n"
    text += f"Content-Type: {content_type}\r\n" if content_type else ""
    text += "".join(f"{name}: {value}\r\n" for name, value in headers)
    text += "\r\n" if keep_alive else "Connection: close\r\n\r\n"
    return text.encode("latin-1", "replace")


def of_stream(stream: Stream, keep_alive: bool) -> bytes:
    """The head of an answer whose body follows piece by piece."""
    chunked = () if stream.sized else (("Transfer-Encoding", "chunked"),)
    headers = (*stream.headers, *chunked)
    return of_answer(stream.status, stream.content_type, headers, keep_alive)


def framed(stream: Stream, chunk: bytes) -> bytes:
    """A piece of such a body as it is sent (RFC 9112, section 7.1)."""
    return chunk if stream.sized else b"%x\r\n%b\r\n" % (len(chunk), chunk)


def origin_form(target: str) -> str:
    """A request's target without scheme and authority (RFC 9112, section 3.2.2)."""
    if target.startswith("/") or "://" not in target:
        return target
    _, slash, rest = target.partition("://")[2].partition("/")
    return slash + rest


def of_switch(headers: _Headers) -> bytes:
    """The answer after which another protocol is spoken."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n".encode("latin-1")
