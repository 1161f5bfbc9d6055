"""Requests as handlers receive them, and the answers that handlers return."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qsl, unquote

from trainyard.embedded.apiserver.auth.request_identity import Identity
from trainyard.schema.dataclass import dataclass

if TYPE_CHECKING:
    from trainyard.embedded.apiserver.http.upgraded_stream import UpgradedStream


@dataclass(slots=True)
class Request:
    """One request, body included. Header names are lower case."""

    method: str
    path: str
    query: dict[str, str]
    """First value of each key; `queries` has all of them."""
    queries: list[tuple[str, str]]
    headers: dict[str, str]
    body: bytes
    identity: Identity
    """The sender."""
    query_string: str = ""
    """As it was sent, for proxied requests."""

    @classmethod
    def from_target(
        cls, method: str, target: str, headers: dict[str, str], body: bytes, identity: Identity
    ) -> Self:
        """From an absolute path with its query, both still percent-encoded."""
        path, _, query = target.partition("?")
        queries = parse_qsl(query, keep_blank_values=True) if query else []
        plain = unquote(path) if "%" in path else path
        return cls(method, plain, dict(reversed(queries)), queries, headers, body, identity, query)

    @property
    def media_type(self) -> str:
        """Media type of the body; "" when the request does not say."""
        text = self.headers.get("content-type", "")
        return text.partition(";")[0].strip() or text

    def flag(self, name: str) -> bool:
        """A boolean of the query, as Kubernetes reads it."""
        return name in self.query and self.query[name].lower() not in ("0", "false")


@dataclass(slots=True)
class Response:
    """A whole answer."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Stream:
    """An answer without a known end; an empty chunk is not sent."""

    chunks: AsyncGenerator[bytes]
    content_type: str = "application/json"
    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    sized: bool = False
    """The headers have its length, or it has no body."""


@dataclass(slots=True)
class Upgrade:
    """An answer 101: the connection switches to another protocol.

    `run` receives an `UpgradedStream`; the connection is closed when it returns.
    """

    headers: list[tuple[str, str]]
    run: Callable[[UpgradedStream], Awaitable[None]]


Answer = Response | Stream | Upgrade
Handler = Callable[[Request], Awaitable[Answer]]


def media_types(accept: str) -> list[tuple[str, Mapping[str, str]]]:
    """The alternatives of an Accept header in order: media type and parameters."""
    found: list[tuple[str, Mapping[str, str]]] = []
    for part in accept.split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        found.append((kind.lower(), {key: value for key, _, value in pairs}))
    return found
