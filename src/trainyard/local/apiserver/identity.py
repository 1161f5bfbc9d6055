"""Who sends a request: told by its head and by the connection that it comes over."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

_WEBSOCKET_PREFIX = "base64url.bearer.authorization.k8s.io."


class Peer(NamedTuple):
    """The process at the other end of a Unix socket, as it was when it connected."""

    pid: int
    uid: int
    gid: int


class Identity(NamedTuple):
    """One who may use the API."""

    name: str


OWNER = Identity("trainyard-admin")
"""Whoever started the cluster."""


class Authenticate(Protocol):
    """Says who sends a request."""

    def __call__(self, headers: Mapping[str, str], peer: Peer | None) -> Identity | None:
        """Who it is, None to refuse the request (401).

        Asked once for each request, as soon as its head is there and before its body is read;
        header names are lower case. `peer` is None over TCP.
        """


def owner_of_socket(headers: Mapping[str, str], peer: Peer | None) -> Identity | None:
    """For a socket that only the cluster's owner can open."""
    return OWNER


def holder_of(token: str) -> Authenticate:
    """For a port that anybody on this machine can reach: the owner is who holds `token`."""
    expected = token.encode()

    def check(headers: Mapping[str, str], peer: Peer | None) -> Identity | None:
        return OWNER if hmac.compare_digest(bearer_token(headers), expected) else None

    return check


def bearer_token(headers: Mapping[str, str]) -> bytes:
    """The token that a request carries; empty when there is none."""
    # RFC 9110, section 11.1: the scheme's case does not matter, and one or more spaces follow it.
    scheme, _, credentials = headers.get("authorization", "").strip().partition(" ")
    if scheme:
        return credentials.strip().encode("latin-1") if scheme.lower() == "bearer" else b""
    # A browser's or kubectl's WebSocket can carry the token only as a subprotocol.
    for protocol in headers.get("sec-websocket-protocol", "").split(","):
        protocol = protocol.strip()
        if protocol.startswith(_WEBSOCKET_PREFIX):
            import base64

            encoded = protocol[len(_WEBSOCKET_PREFIX) :]
            padded = encoded + "=" * (-len(encoded) % 4)
            with suppress(ValueError):
                return base64.urlsafe_b64decode(padded)
    return b""
