"""Earlier versions of trainyard, taken from this repository's history."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
NOW = "now"
DAY_25 = "cf2ccd5561a5422efda42a444a754d7ac2b83317"
DAY_26 = "7b37b339ce7cee1185ce0aff7c5b7cf4d9ebc3c2"
"""The first commits of two days."""
OLDER_DEFINITIONS = "10b47a3cbfaa1763a2b823300f4bb514b6035939"
"""Without `restartMode`, `hang`, `nodeCheck` and 69 fields of the status."""
MORE = (
    "ade47bcb80f95350adad6c202dd70dee75936b93",
    "1aa512ada2988cf591c5c2d3882d9a9a8ab6e1ee",
    "112eee30c17bc1b4f3629d101f521ed6adcb84e1",
    "c90fe02aabd7f7056f56272630d7cbedd3f6ddd2",
    "938f47edbfd921361b207f991dceb453ec9da332",
)


def sources_of(commit: str, folder: Path) -> Path:
    """The sources of a commit or of NOW, to be put into PYTHONPATH; made below `folder` once."""
    if commit == NOW:
        return SOURCES
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
