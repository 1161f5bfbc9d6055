"""The SSH keys of a job whose launcher reaches its workers by ssh."""

from __future__ import annotations

import base64


def ssh_keys() -> dict[str, str]:
    """The files of a job whose launcher reaches its workers by ssh: a user's and a host's keys."""
    # Decision 18.
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
