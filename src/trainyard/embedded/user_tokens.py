"""Bearer tokens of tenants for the cluster's TLS port.

A token is an HMAC over the user's id and a number, with a key that only the owner can read. `renew`
raises the number. So tokens are stable without being stored.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from trainyard.embedded.tls_files import TokenError, write_private
from trainyard.machine.ownership import check_secret
from trainyard.machine.state_folder import FILE_FORMAT
from trainyard.schema.dataclass import dataclass


@dataclass(slots=True)
class UserTokens:
    """The tokens of one cluster, whose key is in the file `path`; without one, there are none."""

    path: Path | None = None
    _key: bytes = b""
    _kept: dict[str, Any] = field(default_factory=dict)
    """The content of the file, with what a newer version has added to it."""
    _rounds: dict[int, int] = field(default_factory=dict)
    """How often a user's token was renewed."""

    def __post_init__(self) -> None:
        if self.path is not None:
            self._load(self.path)

    def token_for(self, uid: int) -> str:
        """The one token of a user that counts now; nothing is stored of it."""
        return self._token(uid, self._rounds.get(uid, 0))

    def uid_of(self, token: bytes) -> int | None:
        """Whose token it is; None if it is nobody's, or not any more."""
        text = token.partition(b".")[0]
        if not self._key or not text.isdigit() or len(text) > 10:
            return None
        uid = int(text)
        return uid if hmac.compare_digest(token, self.token_for(uid).encode()) else None

    def renew(self, uid: int) -> None:
        """From now on the tokens that a user has had are worth nothing."""
        self._rounds[uid] = self._rounds.get(uid, 0) + 1
        if self.path is not None:
            self._store(self.path)

    def _token(self, uid: int, number: int) -> str:
        mark = f"{uid}.{number}"
        return f"{mark}.{hmac.new(self._key, mark.encode(), hashlib.sha256).hexdigest()}"

    def _load(self, path: Path) -> None:
        try:
            with suppress(FileNotFoundError):
                check_secret(path)
                self._kept = kept = json.loads(path.read_text())
                self._key = bytes.fromhex(kept["key"])
                self._rounds = {int(uid): int(number) for uid, number in kept["renewed"].items()}
                return
            self._key = secrets.token_bytes(32)
            self._store(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TokenError(
                f"cannot keep the key of the users' tokens in {path}: {error}; remove the file, "
                "which ends all tokens that were given"
            ) from error

    def _store(self, path: Path) -> None:
        renewed = {str(uid): number for uid, number in self._rounds.items()}
        kept = {"format": FILE_FORMAT, **self._kept, "key": self._key.hex(), "renewed": renewed}
        write_private(path, json.dumps(kept).encode())
