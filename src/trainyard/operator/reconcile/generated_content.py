"""Fills in what a plan cannot know of a manifest: random keys, and values from the cluster."""

from __future__ import annotations

import base64

from trainyard.kinds.shared.scheduling.kueue_workload import PRIORITY_CLASSES
from trainyard.kinds.shared.workload import Generated, Manifest
from trainyard.kube.client import Client
from trainyard.lifecycle.actions import Create
from trainyard.operator.channel.report_channel import ReportChannel


async def complete_manifest(
    client: Client, action: Create, uid: str, channel: ReportChannel | None
) -> Manifest:
    """The complete manifest of an object that the job with that UID is to own.

    Raises `ApiError` when the server does not know what is missing.
    """
    manifest = action.manifest()
    match action.generated:
        case Generated.NOTHING:
            return manifest
        case Generated.SSH_KEYS:
            return {**manifest, "data": {**(manifest.get("data") or {}), **ssh_keys()}}
        case Generated.CHANNEL:
            files = channel.ca.pod_files(uid) if channel else {}
            return {**manifest, "data": {**(manifest.get("data") or {}), **files}}
        case Generated.KUEUE_PRIORITY:
            name = manifest["spec"]["priorityClassRef"]["name"]
            found = await client.get(PRIORITY_CLASSES, name)
            return {**manifest, "spec": {**manifest["spec"], "priority": found.get("value") or 0}}


def ssh_keys() -> dict[str, str]:
    """A new user key and host key, as the base64 `data` of a Secret.

    For jobs whose launcher reaches its workers by ssh (decision 18).
    """
    user_private, user_public = _generate_ed25519()
    host_private, host_public = _generate_ed25519()
    files = {
        "id_ed25519": user_private,
        "id_ed25519.pub": user_public,
        "authorized_keys": user_public,
        "ssh_host_ed25519_key": host_private,
        "ssh_host_ed25519_key.pub": host_public,
    }
    return {name: base64.b64encode(text).decode() for name, text in files.items()}


def _generate_ed25519() -> tuple[bytes, bytes]:
    """A private and a public key as OpenSSH reads them, each with a final newline."""
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.OpenSSH, s.NoEncryption())
    public = key.public_key().public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH)
    return private, public + b"\n"
