"""A private certificate authority and the server's certificate, for loopback only.

kubectl sends tokens over TLS only. Imported only by `trainyard up`: x509 costs 60 ms.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from trainyard.embedded.tls_files import TlsFiles, write_private
from trainyard.machine import certificate_authority

_LIFETIME = datetime.timedelta(days=3650)
_RENEW_BEFORE = datetime.timedelta(days=30)
_HOSTS = ("localhost", "kubernetes.default.svc", "127.0.0.1", "::1")


def ensure(folder: Path) -> TlsFiles:
    """The certificates in `folder`, created again when missing or about to expire."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = TlsFiles(str(folder))
    if not _usable(found):
        _make(found)
    return found


def _usable(found: TlsFiles) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(found.certificate.read_bytes())
        x509.load_pem_x509_certificate(found.authority.read_bytes())
        serialization.load_pem_private_key(found.key.read_bytes(), None)
        certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    now = datetime.datetime.now(datetime.UTC)
    return certificate.not_valid_after_utc - now > _RENEW_BEFORE


def _make(paths: TlsFiles) -> None:
    authority = certificate_authority.create_authority("trainyard local authority", _LIFETIME)
    server = certificate_authority.sign_server(authority, "trainyard", _HOSTS, _LIFETIME)
    write_private(paths.authority, authority.certificate)
    write_private(paths.certificate, server.certificate)
    write_private(paths.key, server.key)
