"""Which packages an interpreter has, by the names of folders alone: nothing is run or imported."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_METADATA = re.compile(r"(?P<name>[^-/]+)-(?P<version>[^-/]+)(-py[\d.]+)?\.(dist|egg)-info\Z")
_MOST = 5_000
_MINOR = re.compile(r"python(\d+\.\d+)t?\Z")


class Environment(NamedTuple):
    """An interpreter and what is installed for it."""

    python: str
    version: str
    """``3.12.3``, or ``3.12`` where the rest is not told; "" where nothing is."""
    packages: tuple[str, ...]
    """``name==version``, sorted."""


def environment_of(python: str) -> Environment:
    """What is installed for an interpreter, its virtual environment's own packages first."""
    prefix = _prefix(python)
    settings = _settings(prefix)
    version = _version(python, prefix, settings)
    folders = _folders(prefix, version)
    if settings.get("include-system-site-packages", "").lower() == "true":
        folders += _folders(Path(settings.get("home", "/usr/bin")).parent, version)
    found: dict[str, str] = {}
    for folder in folders:
        for name, number in _installed(folder):
            found.setdefault(name, number)
    packages = sorted(f"{name}=={number}" for name, number in found.items())[:_MOST]
    return Environment(python, version, tuple(packages))


def _prefix(python: str) -> Path:
    """Of its environment, or of the installation behind a mere link."""
    called = Path(os.path.abspath(python)).parent.parent
    is_one = (called / "pyvenv.cfg").exists() or any(called.glob("lib/python3*"))
    return called if is_one else Path(os.path.realpath(python)).parent.parent


def _settings(prefix: Path) -> dict[str, str]:
    try:
        lines = (prefix / "pyvenv.cfg").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _folders(prefix: Path, version: str) -> list[Path]:
    """Debian's system Python has two of them, and one of its administrator."""
    minor = ".".join(version.split(".")[:2])
    wanted = ("python3", f"python{minor}", f"python{minor}t")
    patterns = (
        "lib*/python3*/site-packages",
        "local/lib/python3*/dist-packages",
        "lib/python3*/dist-packages",
    )
    found = (folder for pattern in patterns for folder in sorted(prefix.glob(pattern)))
    return [folder for folder in found if not minor or folder.parent.name in wanted]


def _installed(folder: Path) -> Iterator[tuple[str, str]]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if match := _METADATA.match(name):
            yield re.sub(r"[-_.]+", "-", match["name"]).lower(), match["version"]


def _version(python: str, prefix: Path, settings: dict[str, str]) -> str:
    version = settings.get("version") or settings.get("version_info", "")
    if match := re.match(r"\d+\.\d+(\.\d+)?", version):
        return match[0]
    for file in prefix.glob("conda-meta/python-3*.json"):
        return file.name.split("-")[1]
    match = _MINOR.match(os.path.basename(os.path.realpath(python)))
    return match[1] if match else ""
