"""A test that fails has a second try in CI; see `tests/conftest.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tests.conftest

SHARED = """
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def session():
    yield
    with Path("session").open("a") as ended:
        ended.write("x")

@pytest.fixture(scope="module")
def shared(session):
    yield []
    with Path("ended").open("a") as ended:
        ended.write("x")

def test_before(shared):
    shared.append("before")

def test_fails_at_first(shared):
    first = "before" in shared
    assert "mine" not in shared
    shared.append("mine")
    assert not first

def test_after(shared):
    assert shared == ["mine"]
"""


def test_a_second_try_finds_nothing_of_the_first_in_what_its_module_shares(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(Path(tests.conftest.__file__).read_text())
    (tmp_path / "test_it.py").write_text(SHARED)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def played(*options: str) -> str:
        command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-q", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout

    assert "3 passed, 1 rerun" in (told := played("--reruns", "1")), told
    assert (tmp_path / "ended").read_text() == "xx"
    assert (tmp_path / "session").read_text() == "x"
    assert "2 failed, 1 passed" in (told := played()), told
