"""The package is `trainyard-jobs`: `trainyard` on the public index is somebody else's.

No text of ours may have anybody install that one.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator

import pytest
from tests.unit.gates.sources import ROOT

_INSTALLERS = (
    r"(?:pip3? install|pipx (?:install|run)|uvx|uv (?:add|pip install|tool (?:install|run)))"
)
_FOREIGN = re.compile(rf"{_INSTALLERS}(?! --from)\b[^\n`|;&]*?[\s'\"]trainyard(?![-\w/.])")
_EXTRA = re.compile(r"\btrainyard\[")


def test_no_text_installs_the_package_of_somebody_else() -> None:
    assert list(_texts()), "git lists no files"
    found = {name: places for name, text in _texts() if (places := installs_foreign(text))}
    assert found == {}


def test_the_distribution_is_called_as_the_texts_say() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "trainyard-jobs"
    assert set(project["scripts"]) == {"trainyard"}


@pytest.mark.parametrize(
    "text",
    [
        "pip install trainyard",
        "pip install 'trainyard[stacks]'",
        "$ pipx install trainyard  # the tool",
        "uvx trainyard run x.py",
        "uv tool install -q trainyard",
        "it comes with `trainyard[operator]`",
    ],
)
def test_a_text_that_installs_it_is_found(text: str) -> None:
    assert installs_foreign(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install trainyard-jobs",
        "pip install 'trainyard-jobs[stacks]'",
        "pip install . && trainyard run x.py",
        "uvx --from trainyard-jobs trainyard run x.py",
        "python -m pip uninstall trainyard",
        "helm install trainyard deploy/chart",
    ],
)
def test_a_text_that_does_not_is_left_alone(text: str) -> None:
    assert not installs_foreign(text)


def installs_foreign(text: str) -> list[str]:
    """The places in a text that would install a package which is not ours."""
    return [match[0] for pattern in (_FOREIGN, _EXTRA) for match in pattern.finditer(text)]


def _texts() -> Iterator[tuple[str, str]]:
    """Every text file that is in the repository but this one, with its name."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().split("\0"):
        path = ROOT / name
        if name and path.name != "test_distribution_name.py" and path.is_file():
            try:
                yield name, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
