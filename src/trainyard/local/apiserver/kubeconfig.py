"""The kubeconfig of the embedded cluster, and the token in it."""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path
from typing import Any

from trainyard.local.tls import write_private
from trainyard.schema.errors import TrainyardError

CONTEXT = "trainyard"


class TokenError(TrainyardError):
    """The bearer token cannot be kept in the state folder."""


def ensure_token(path: Path) -> str:
    """The bearer token in the file `path`, made at random when it is missing."""
    try:
        found = path.read_text().strip() if path.exists() else ""
        if found:
            return found
        token = secrets.token_urlsafe(32)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, token.encode())
    except OSError as error:
        raise TokenError(f"cannot keep the API token in {path}: {error.strerror}") from error
    return token


def kubeconfig(
    *, port: int, authority: Path, token: str, host: str = "127.0.0.1"
) -> dict[str, Any]:
    """A kubeconfig with one context that is whole in itself (no paths in it)."""
    encoded = base64.b64encode(authority.read_bytes()).decode()
    server = {"server": f"https://{host}:{port}", "certificate-authority-data": encoded}
    context = {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"}
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
