"""A private certificate authority, and the server certificates that it signs.

Import it only where certificates are made: x509 takes 30 ms to import.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainyard.schema.dataclass import dataclass

_CLOCK_SKEW = datetime.timedelta(hours=1)
_USES = (
    "digital_signature content_commitment key_encipherment data_encipherment key_agreement "
    "key_cert_sign crl_sign encipher_only decipher_only"
)
_SIGNS_CERTIFICATES = x509.KeyUsage(**{use: use == "key_cert_sign" for use in _USES.split()})
"""RFC 5280 wants this of an authority; Python from 3.13 on refuses it otherwise."""


@dataclass(frozen=True, slots=True)
class CertificateAndKey:
    """A certificate and its private key, in PEM."""

    certificate: bytes
    key: bytes


def create_authority(
    name: str, lifetime: datetime.timedelta, key: bytes = b""
) -> CertificateAndKey:
    """Create a self-signed authority.

    With the `key` of an older authority, clients that trust either one accept what the other signs.
    """
    private = _load(key) if key else ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(name), _name(name), private.public_key(), lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_SIGNS_CERTIFICATES, critical=True)
        .add_extension(_key_identifier(private), critical=False)
        .sign(private, hashes.SHA256())
    )
    return _pem(certificate, private)


def sign_server(
    signer: CertificateAndKey, common_name: str, hosts: Iterable[str], lifetime: datetime.timedelta
) -> CertificateAndKey:
    """Create a server certificate for these host names and IP addresses."""
    signing, private = _load(signer.key), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(signer.certificate).subject
    names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
        _key_identifier(signing)
    )
    certificate = (
        _builder(_name(common_name), issuer, private.public_key(), lifetime)
        .add_extension(names, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_identifier(private), critical=False)
        .add_extension(identifier, critical=False)
        .sign(signing, hashes.SHA256())
    )
    return _pem(certificate, private)


def _load(key: bytes) -> ec.EllipticCurvePrivateKey:
    found = serialization.load_pem_private_key(key, None)
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise ValueError("not a key of ours")
    return found


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> CertificateAndKey:
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none)
    return CertificateAndKey(certificate.public_bytes(pem), private)


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_identifier(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    lifetime: datetime.timedelta,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + lifetime)
    )
