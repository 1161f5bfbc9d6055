"""The certificates of a cluster, as files. Making them imports a slow library, and only then."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.kube.embedded import Paths


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of the PEM files with which the API server speaks TLS."""

    authority: str
    certificate: str
    key: str


def make_tls(paths: Paths) -> TlsFiles:
    """The certificates of a cluster, made if need be; slow, for the library that it imports."""
    from trainyard.local.apiserver import certificates

    made = certificates.ensure(paths.certificates)
    return TlsFiles(str(made.authority), str(made.certificate), str(made.key))
