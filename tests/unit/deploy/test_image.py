"""The Dockerfile: what hadolint finds, and what it must promise besides."""

from __future__ import annotations

import re
import subprocess

from tests.tools import require
from tests.unit.gates.sources import ROOT

FILE = ROOT / "deploy/Dockerfile"
_STAGE = re.compile(r"^FROM ", re.MULTILINE)


def test_hadolint_finds_nothing() -> None:
    program = require("hadolint")
    done = subprocess.run([program, str(FILE)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_runs_is_not_root_and_has_nothing_that_builds() -> None:
    build, final = _STAGE.split(FILE.read_text())[1:]
    assert "USER 65532:65532" in final  # a number: else runAsNonRoot cannot be judged
    assert "RUN " not in final
    assert "PYTHONDONTWRITEBYTECODE=1" in final  # on a read-only root file system
    assert "--require-hashes" in build


def test_what_it_copies_is_there_and_is_not_ignored() -> None:
    ignored = (ROOT / "deploy/Dockerfile.dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", FILE.read_text(), re.MULTILINE)
    for name in " ".join(copied).split():
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored


def test_the_lock_holds_what_the_operator_needs_and_no_tool() -> None:
    text = (ROOT / "requirements/operator.lock").read_text()
    names = set(re.findall(r"^([-a-z0-9.]+)==", text, re.MULTILINE))
    assert {"aiohttp", "pydantic", "prometheus-client", "uvloop"} <= names
    assert not names & {"pytest", "mypy", "ruff", "torch"}
