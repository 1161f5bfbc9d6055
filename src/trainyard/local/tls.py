"""The files of a cluster that only its user may read: certificates and the like."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


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


def write_private(path: Path, data: bytes) -> None:
    """Replace a file by one that only this user may read."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    draft.replace(path)
