"""System tools that tests need: found, or the test is skipped with a reason (in CI it fails)."""

from __future__ import annotations

import os
import re
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest


def require(tool: str) -> str:
    """The path of a program; without it, skip the test, or fail it where CI is set.

    Looks beside the interpreter too, and where system programs are.
    """
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(tool, path=path)
    if found is None:
        missing(f"{tool} is not installed")
    return found


def missing(reason: str) -> NoReturn:
    """Skip the test for `reason`, or fail it where CI is set."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason}, and CI must run every test")
    pytest.skip(reason)


@cache
def promtool() -> str:
    """Prometheus' own checker, from the PATH or `~/.cache/trainyard/prometheus`; or a skip.

    CI has none: it is in no package that is small. `apt-get download prometheus` and `dpkg-deb -x`
    bring it without root.
    """
    kept = Path.home() / ".cache/trainyard/prometheus/promtool"
    found = shutil.which("promtool") or (str(kept) if kept.exists() else None)
    if found is None:
        pytest.skip(f"not judged by promtool: it is neither on the PATH nor {kept}")
    return found


def soak(few: int, many: int) -> int:
    """How often to try something random: `many` times under TRAINYARD_SOAK=1, else `few`."""
    return many if os.environ.get("TRAINYARD_SOAK") == "1" else few


@cache
def kubectls() -> dict[str, str]:
    """Every kubectl found, oldest first: minor version (`1.27`) to path.

    Looks on PATH and, beside a kubectl found there, for `kubectl.1.NN`.
    """
    found: dict[str, str] = {}
    first = shutil.which("kubectl")
    folders = {Path(first).parent, Path(first).resolve().parent} if first else set()
    for folder in folders:
        for path in folder.glob("kubectl.1.*"):
            version = path.name.removeprefix("kubectl.")
            if re.fullmatch(r"1\.\d+", version) and os.access(path, os.X_OK):
                found[version] = str(path)
    if first and not found:
        found["installed"] = first
    return dict(
        sorted(found.items(), key=lambda item: [int(n) for n in item[0].split(".") if n.isdigit()])
    )


def oldest_and_newest_kubectl() -> list[str]:
    """Names for `kubectl_path`: the oldest and the newest kubectl; one placeholder if none."""
    versions = list(kubectls())
    return [versions[0], versions[-1]] if len(versions) > 1 else versions or ["none"]


def kubectl_path(version: str) -> str:
    """The path of one of `oldest_and_newest_kubectl`; skips or fails the test without any."""
    path = kubectls().get(version)
    if path is None:
        missing("kubectl is not installed")
    return path
