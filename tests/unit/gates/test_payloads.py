"""Payloads run on Python 3.8, the oldest of the images that users bring (`docs/images.md`).

`make check` judges the text (vermin); here a real one reads it, where there is one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from tests.unit.gates.sources import PACKAGE

PAYLOADS = sorted(PACKAGE.glob("payloads/*.py"))
# As any name but __main__, so that nothing starts.
_READ = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='read')"


@cache
def _python() -> str | None:
    """A Python 3.8 on PATH or of pyenv, whose shim on PATH may stand for none."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    places = [shutil.which("python3.8"), *sorted(root.glob("versions/3.8*/bin/python3.8"))]
    for place in filter(None, places):
        if subprocess.run([place, "-c", ""], capture_output=True, timeout=60).returncode == 0:
            return str(place)
    return None


@pytest.fixture
def python() -> str:
    """Without one the test is skipped, in CI too: the oldest Python is not everywhere."""
    found = _python()
    if found is None:
        pytest.skip("there is no Python 3.8 on PATH or among pyenv's versions")
    return found


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda path: path.stem)
def test_a_payload_can_be_read_by_python_3_8(python: str, payload: Path) -> None:
    done = subprocess.run(
        [python, "-I", "-B", "-W", "error", "-c", _READ, str(payload)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_supervisor_explains_itself_on_python_3_8(python: str) -> None:
    supervise = PACKAGE / "payloads" / "supervise.py"
    done = subprocess.run(
        [python, "-I", "-B", "-W", "error", str(supervise), "--help"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage:" in done.stdout
