"""What clients over TLS need: certificates, the token and the kubeconfig, for this user only."""

from __future__ import annotations

import base64
import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainyard.machine.ownership import check_secret
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError

CONTEXT = "trainyard"


class TokenError(TrainyardError):
    """The bearer token cannot be kept in the state folder."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files with which the API server speaks TLS."""

    folder: str

    @property
    def authority(self) -> Path:
        """The certificate of those who sign."""
        return Path(self.folder) / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The server's."""
        return Path(self.folder) / "server.crt"

    @property
    def key(self) -> Path:
        """The server's private key."""
        return Path(self.folder) / "server.key"


def ensure_token(path: Path) -> str:
    """The bearer token in the file `path`, made at random when it is missing."""
    try:
        with suppress(FileNotFoundError):
            check_secret(path)
        found = path.read_text().strip() if path.exists() else ""
        if found:
            return found
        token = secrets.token_urlsafe(32)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, token.encode())
    except OSError as error:
        raise TokenError(f"cannot keep the API token in {path}: {error.strerror}") from error
    return token


def make_kubeconfig(
    *,
    port: int,
    authority: Path,
    token: str,
    namespace: str = "default",
) -> dict[str, Any]:
    """A kubeconfig with one context that is whole in itself (no paths in it)."""
    encoded = base64.b64encode(authority.read_bytes()).decode()
    server = {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": encoded}
    context = {"cluster": CONTEXT, "user": CONTEXT, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [{"name": CONTEXT, "cluster": server}],
        "users": [{"name": CONTEXT, "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": context}],
    }


def write_kubeconfig(path: Path, config: dict[str, Any]) -> None:
    """Write it for this user only. JSON is YAML, so that no YAML library is needed."""
    try:
        write_private(path, (json.dumps(config, indent=2) + "\n").encode())
    except OSError as error:
        raise TokenError(f"cannot write the kubeconfig {path}: {error.strerror}") from error


def write_private(path: Path, data: bytes) -> None:
    """Replace a file by one that only this user may read."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    draft.replace(path)
