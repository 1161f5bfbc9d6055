"""Authentication: who sends a request, by its headers and its connection."""

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

_USER_CACHE_SECONDS = 60.0
_WEBSOCKET_PREFIX = "base64url.bearer.authorization.k8s.io."


class Identity(NamedTuple):
    """A user of the API."""

    name: str
    is_admin: bool
    """May do everything: the user who started the cluster, and root."""
    user: User


OWNER = Identity("trainyard-admin", True, User(os.geteuid(), os.getegid(), "trainyard-admin"))
"""The user who started the cluster."""


class Authenticate(Protocol):
    """Identifies the sender of a request."""

    def __call__(self, headers: Mapping[str, str], peer: Peer | None) -> Identity | None:
        """The sender, or None to refuse the request (401).

        Called once per request, after its headers and before its body are read. Header names are
        lower case; `peer` is None over TCP.
        """


TokenHolder = Callable[[bytes], Identity | None]
"""Returns the user of a token."""


class Authenticator:
    """Identifies users by peer credentials on the socket, and by token on the TLS port.

    Entries of the machine's user database are cached for a minute.
    """

    def __init__(self, allowed: AllowList = NOBODY_ELSE, tokens: UserTokens | None = None) -> None:
        self.allowed = allowed
        self.tokens = tokens or UserTokens()
        self._cached_users: dict[int, tuple[float, User]] = {}

    @property
    def has_other_users(self) -> bool:
        """Whether users other than the owner may use the cluster."""
        return any(self.allowed)

    def by_socket_peer(self, headers: Mapping[str, str], peer: Peer | None) -> Identity | None:
        """Authenticate by the peer credentials of the Unix socket; raises ApiError (401)."""
        return None if peer is None else self._identity_of(peer.uid)

    def by_bearer_token(self, owners_token: str) -> Authenticate:
        """For a port that every user of this machine can reach: authenticate by bearer token."""
        holder = self.token_holder(owners_token)

        def check(headers: Mapping[str, str], peer: Peer | None) -> Identity | None:
            return holder(bearer_token(headers))

        return check

    def token_holder(self, owners_token: str) -> TokenHolder:
        """Returns the user of a token, or None; raises ApiError (401) for excluded users."""
        expected = owners_token.encode()

        def holder(token: bytes) -> Identity | None:
            if hmac.compare_digest(token, expected):
                return OWNER
            uid = self.tokens.uid_of(token)
            return None if uid is None else self._identity_of(uid)

        return holder

    def _identity_of(self, uid: int) -> Identity:
        if uid in (0, os.geteuid()):
            return OWNER
        who = self._user_with_uid(uid)
        if not self.allowed.admits(who):
            text = f"user {who.name} may not use this cluster: whoever owns it decides with up"
            raise ApiError(f"{text} --allow-user {who.name}", code=401, reason="Unauthorized")
        return Identity(who.name, False, who)

    def _user_with_uid(self, uid: int) -> User:
        now = time.monotonic()
        since, who = self._cached_users.get(uid, (0.0, None))
        if who is None or now - since >= _USER_CACHE_SECONDS:
            who = user_with_uid(uid)
            self._cached_users[uid] = (now, who)
        return who


def bearer_token(headers: Mapping[str, str]) -> bytes:
    """The bearer token of a request; empty when there is none."""
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
