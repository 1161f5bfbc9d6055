"""`tools.kubernetes_tests`: what it says where there is nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            [],
            1,
            "no tests of Kubernetes found; to fetch them: python -m tools.kubernetes_tests fetch",
        ),
        (["fetch"], 69, "cannot go on: apt-get, dpkg-deb, tar, xz not found"),
        (["elsewhere"], 2, "Usage: "),
    ],
)
def test_it_says_what_is_not_there(
    arguments: list[str], code: int, said: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.kubernetes_tests", *arguments],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True)
