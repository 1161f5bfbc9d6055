"""Earlier versions of trainyard, taken from this repository's history."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"


def sources_of(commit: str, folder: Path) -> Path:
    """The sources of a commit, to be put into PYTHONPATH; made below `folder` once."""
    there = folder / commit[:12]
    if not there.exists():
        there.mkdir(parents=True)
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", commit, "src"], capture_output=True, check=False
        )
        if archive.returncode != 0:
            pytest.fail(
                f"commit {commit[:12]} is not in this clone, and earlier versions come from its "
                f"history: {archive.stderr.decode().strip()}; fetch it with: git fetch --unshallow"
            )
        subprocess.run(["tar", "-x", "-C", str(there)], input=archive.stdout, check=True)
    return there / "src"
