"""The observer as pods have it, for tests and measurements that mount nothing."""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from trainyard.payloads import shipping


def lay_out(folder: Path, changes: Mapping[str, str | None] | None = None) -> None:
    """Put it into a folder for PYTHONPATH.

    `changes`: other texts for programs of the package, by name; None: without it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / shipping.HOOK).write_text(shipping.observer_hook())
    package = folder / shipping.OBSERVER_ARCHIVE
    package.write_bytes(base64.b64decode(shipping.observer_archive()))
    if changes:
        with zipfile.ZipFile(io.BytesIO(package.read_bytes())) as whole:
            texts: dict[str, bytes | str | None] = {n: whole.read(n) for n in whole.namelist()}
        texts |= {f"trainyard_observer/{name}": text for name, text in changes.items()}
        with zipfile.ZipFile(package, "w") as other:
            for name, text in texts.items():
                if text is not None:
                    other.writestr(name, text)
