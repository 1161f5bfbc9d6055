"""Who sends a request: told by its head and by the connection that it comes over."""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from trainyard.embedded.user_tokens import UserTokens
from trainyard.kube.errors import ApiError
from trainyard.machine.ownership import Peer
from trainyard.machine.users import NOBODY_ELSE, AllowList, User, user_with_uid

_KNOWN_SECONDS = 60.0
_WEBSOCKET_PREFIX = "base64url.bearer.authorization.k8s.io."


class Identity(NamedTuple):
    """One who may use the API."""

    name: str
    is_admin: bool
    """May do everything: whoever started the cluster, and root."""
    person: User


OWNER = Identity("trainyard-admin", True, User(os.geteuid(), os.getegid(), "trainyard-admin"))
"""Whoever started the cluster."""


class Authenticate(Protocol):
    """Says who sends a request."""

    def __call__(self, headers: Mapping[str, str], peer: Peer | None) -> Identity | None:
        """Who it is, None to refuse the request (401).

        Asked once for each request, as soon as its head is there and before its body is read;
        header names are lower case. `peer` is None over TCP.
        """


Holder = Callable[[bytes], Identity | None]
"""Says whose a token is."""


class People:
    """Tells the people who use a cluster apart: by the kernel on its socket, by token on its port.

    What the machine's database says of a user is asked again after a minute.
    """

    def __init__(self, allowed: AllowList = NOBODY_ELSE, tokens: UserTokens | None = None) -> None:
        self._allowed = allowed
        self.tokens = tokens or UserTokens()
        self._known: dict[int, tuple[float, User]] = {}

    @property
    def are_several(self) -> bool:
        """Others than the owner may use it."""
        return any(self._allowed)

    def of_socket(self, headers: Mapping[str, str], peer: Peer | None) -> Identity | None:
        """Who is at the other end of the socket; raises ApiError (401) with the way in."""
        return None if peer is None else self._admitted(peer.uid)

    def of_port(self, owners_token: str) -> Authenticate:
        """For a port that anybody on this machine can reach: who a request's token belongs to."""
        holder = self.of_token(owners_token)

        def check(headers: Mapping[str, str], peer: Peer | None) -> Identity | None:
            return holder(bearer_token(headers))

        return check

    def of_token(self, owners_token: str) -> Holder:
        """Who a token belongs to, None if it is nobody's; raises ApiError (401) as at the port."""
        expected = owners_token.encode()

        def holder(token: bytes) -> Identity | None:
            if hmac.compare_digest(token, expected):
                return OWNER
            uid = self.tokens.uid_of(token)
            return None if uid is None else self._admitted(uid)

        return holder

    def _admitted(self, uid: int) -> Identity:
        if uid in (0, os.geteuid()):
            return OWNER
        who = self._person(uid)
        if not self._allowed.admits(who):
            text = f"user {who.name} may not use this cluster: whoever owns it decides with up"
            raise ApiError(f"{text} --allow-user {who.name}", code=401, reason="Unauthorized")
        return Identity(who.name, False, who)

    def _person(self, uid: int) -> User:
        now = time.monotonic()
        since, who = self._known.get(uid, (0.0, None))
        if who is None or now - since >= _KNOWN_SECONDS:
            who = user_with_uid(uid)
            self._known[uid] = (now, who)
        return who


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
