"""The Dockerfile: what hadolint finds, and what it must promise besides."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import require
from tests.unit.gates.sources import ROOT

FILE = ROOT / "deploy/Dockerfile"
_STAGE = re.compile(r"^FROM ", re.MULTILINE)


def test_hadolint_finds_nothing() -> None:
    program = require("hadolint")
    done = subprocess.run([program, str(FILE)], capture_output=True, text=True, timeout=120)
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


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The package as the image has it: without what the Dockerfile removes."""
    removed = re.findall(r"/site-packages/trainyard/(\w+)", FILE.read_text())
    assert removed == ["embedded", "podruntime"]
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src/trainyard", tmp_path / "trainyard", ignore=unwanted)
    for room in removed:
        shutil.rmtree(tmp_path / "trainyard" / room)
    return tmp_path


def command(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = (sys.executable, "-P", "-m", "trainyard", *arguments)
    environment = {"PYTHONPATH": str(installed), "HOME": str(installed)}
    return subprocess.run(program, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize(
    "arguments",
    [("operator", "--help"), ("crds",), ("manifests", "--image", "registry.example/operator:1")],
    ids=lambda arguments: arguments[0],
)
def test_what_the_image_is_for_does_without_what_it_leaves_out(
    installed: Path, arguments: tuple[str, ...]
) -> None:
    done = command(installed, *arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_operator_comes_as_far_as_its_cluster(installed: Path) -> None:
    config = installed / "config"
    config.write_text("apiVersion: v1\nkind: Config\n")
    done = command(installed, "operator", "--kubeconfig", str(config))
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert str(config) in done.stderr


@pytest.mark.parametrize("name", ["up", "list", "run"])
def test_other_commands_say_in_the_image_that_they_are_not_there(
    installed: Path, name: str
) -> None:
    done = command(installed, name, *(["x.py"] if name == "run" else []))
    assert done.returncode == 1
    assert done.stderr.startswith("error: this installation is the operator's image, ")
    assert done.stderr.count("\n") == 1
