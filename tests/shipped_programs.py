"""Programs as pods have them: side by side in one folder, under their names there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainyard.payloads import launch, shipping


def ship(folder: Path, files: Mapping[str, str] = launch.FILES) -> Path:
    """Write the programs into a folder, which need not exist; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in shipping.programs(files).items():
        (folder / name).write_text(text)
    return folder
