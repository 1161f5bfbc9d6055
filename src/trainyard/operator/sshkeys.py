"""Key pairs for the jobs whose launchers reach their workers by ssh: one set per job."""

from __future__ import annotations

import base64
from typing import Any


def fill_in(secret: dict[str, Any]) -> dict[str, Any]:
    """The Secret manifest with a new user key and a new host key in its `data` (decision 18)."""
    return {**secret, "data": {**(secret.get("data") or {}), **_generate()}}


def _generate() -> dict[str, str]:
    user_private, user_public = _ed25519()
    host_private, host_public = _ed25519()
    files = {
        "id_ed25519": user_private,
        "id_ed25519.pub": user_public,
        "authorized_keys": user_public,
        "ssh_host_ed25519_key": host_private,
        "ssh_host_ed25519_key.pub": host_public,
    }
    return {name: base64.b64encode(text).decode() for name, text in files.items()}


def _ed25519() -> tuple[bytes, bytes]:
    """A private and a public key as OpenSSH reads them, each with a final newline."""
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.OpenSSH, s.NoEncryption())
    public = key.public_key().public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH)
    return private, public + b"\n"
