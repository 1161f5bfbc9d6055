"""A private certificate authority and the server's certificate, for loopback only.

kubectl sends tokens over TLS only. Imported only by `trainyard up`: x509 costs 60 ms.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainyard.local.tls import TlsFiles, write_private

_LIFETIME = datetime.timedelta(days=3650)
_RENEW_BEFORE = datetime.timedelta(days=30)
_CLOCK_SKEW = datetime.timedelta(hours=1)


_USES = (
    "digital_signature content_commitment key_encipherment data_encipherment key_agreement "
    "key_cert_sign crl_sign encipher_only decipher_only"
)
_SIGNS_CERTIFICATES = x509.KeyUsage(**{use: use == "key_cert_sign" for use in _USES.split()})
"""RFC 5280 wants this of an authority; Python from 3.13 on refuses it otherwise."""


def ensure(folder: Path) -> TlsFiles:
    """The certificates in `folder`, made anew when missing or about to expire."""
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
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name = _name("trainyard local authority")
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_SIGNS_CERTIFICATES, critical=True)
        .add_extension(_key_identifier(authority_key), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.DNSName("kubernetes.default.svc"),
        x509.IPAddress(ipaddress.IPv4Address("127.0.0.1")),
        x509.IPAddress(ipaddress.IPv6Address("::1")),
    ]
    server = (
        _builder(_name("trainyard"), authority_name, server_key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_identifier(server_key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                _key_identifier(authority_key)
            ),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    write_private(paths.authority, authority.public_bytes(pem))
    write_private(paths.certificate, server.public_bytes(pem))
    key = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none)
    write_private(paths.key, key)


def _key_identifier(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
    )
