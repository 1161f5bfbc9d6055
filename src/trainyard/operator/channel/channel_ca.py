"""The secrets of the report channel: a CA of our own, the server's certificate and the token key.

Pods trust the CA; each job has a bearer token, a keyed hash of its UID (decision 218). So the
controller stores no token, and whichever process leads knows all of them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from trainyard.schema.dataclass import dataclass
from trainyard.schema.times import parse, render

CA, CA_KEY, CERTIFICATE, KEY, TOKEN_KEY = "ca.crt", "ca.key", "tls.crt", "tls.key", "token.key"
HOSTS, RENEW, RENEW_CA = "hosts", "renewAt", "renewAuthorityAt"
_ALL = (CA, CA_KEY, CERTIFICATE, KEY, TOKEN_KEY, HOSTS, RENEW, RENEW_CA)
_YEAR = timedelta(days=365)
_LIFETIME, _CA_LIFETIME = _YEAR, 10 * _YEAR
_RENEW_BEFORE, _RENEW_CA_BEFORE = _YEAR / 3, 2 * _YEAR
"""A renewed CA has the same key: pods that know the old certificate trust what the new one signs,
as long as the old one is valid."""


@dataclass(frozen=True, slots=True)
class ChannelCA:
    """The CA with all that belongs to it, as texts by file name; stored as one Secret or file."""

    files: Mapping[str, str]

    @classmethod
    def from_files(cls, files: Mapping[str, str]) -> ChannelCA | None:
        """From stored files; None where some are missing or unreadable."""
        if not all(isinstance(files.get(name), str) for name in _ALL):
            return None
        try:
            parse(files[RENEW]), parse(files[RENEW_CA]), json.loads(files[HOSTS])
        except ValueError:
            return None
        return cls({name: files[name] for name in _ALL})

    def is_valid_for(self, hosts: Sequence[str], now: datetime) -> bool:
        """Whether it was issued for these hosts, and nothing of it has to be renewed yet."""
        due = (parse(self.files[name]) for name in (RENEW, RENEW_CA))
        is_due = any(moment is None or moment <= now for moment in due)
        return not is_due and json.loads(self.files[HOSTS]) == list(hosts)

    def token(self, uid: str) -> str:
        """The bearer token of a job."""
        key = self.files[TOKEN_KEY].encode()
        digest = hmac.digest(key, f"trainyard channel {uid}".encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def pod_files(self, uid: str) -> dict[str, str]:
        """The base64 `data` of a job's Secret: the CA certificate and the job's token."""
        found = {CA: self.files[CA], "token": self.token(uid)}
        return {name: base64.b64encode(text.encode()).decode() for name, text in found.items()}

    def server_ssl_context(self) -> ssl.SSLContext:
        """The TLS context of the server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Python reads certificates from files only; a temporary file is readable by us alone.
        with tempfile.NamedTemporaryFile() as file:
            file.write(f"{self.files[KEY]}\n{self.files[CERTIFICATE]}".encode())
            file.flush()
            context.load_cert_chain(file.name)
        return context


def issue_channel_ca(hosts: Sequence[str], before: ChannelCA | None, now: datetime) -> ChannelCA:
    """Issue what is due anew. Pods that trust `before` trust the result; tokens stay the same."""
    from trainyard.machine import certificate_authority  # imports a slow library

    old = before.files if before is not None else {}
    due = parse(old.get(RENEW_CA))
    if due is not None and due > now:
        signer = certificate_authority.CertificateAndKey(old[CA].encode(), old[CA_KEY].encode())
        renew_ca = old[RENEW_CA]
    else:
        key = old.get(CA_KEY, "").encode()
        signer = certificate_authority.create_authority(
            "trainyard channel authority", _CA_LIFETIME, key
        )
        renew_ca = render(now + _CA_LIFETIME - _RENEW_CA_BEFORE)
    server = certificate_authority.sign_server(signer, "trainyard channel", hosts, _LIFETIME)
    return ChannelCA(
        {
            CA: signer.certificate.decode(),
            CA_KEY: signer.key.decode(),
            CERTIFICATE: server.certificate.decode(),
            KEY: server.key.decode(),
            TOKEN_KEY: old.get(TOKEN_KEY) or secrets.token_urlsafe(32),
            HOSTS: json.dumps(list(hosts)),
            RENEW: render(now + _LIFETIME - _RENEW_BEFORE),
            RENEW_CA: renew_ca,
        }
    )
