"""Pods reach what is outside of the machine, as root and as an unprivileged user, and no more."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.egress import hostile, naming, scenes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make networks")
WHO = ("root", "another user")
_SECONDS = 400.0


@pytest.fixture(scope="module", params=WHO)
def usual(request: pytest.FixtureRequest) -> dict[str, str]:
    return play("scenes", request.param)


@pytest.fixture(scope="module", params=WHO)
def named(request: pytest.FixtureRequest) -> dict[str, str]:
    return play("naming", request.param)


@pytest.fixture(scope="module", params=WHO)
def attacked(request: pytest.FixtureRequest) -> dict[str, str]:
    return play("hostile", request.param)


def play(module: str, who: str) -> dict[str, Any]:
    """What the module tells, in a process on a machine of its own."""
    folder = Path("/var/tmp") / f"trainyard-egress-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o777)
    user = ["-m", "tests.embedded.as_user", sys.executable] if who != "root" else []
    argv = [sys.executable, *user, "-m", f"tests.egress.{module}", str(folder)]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.egress.world", str(folder), *argv],
            env={**os.environ, "PYTHONPATH": "src", "HOME": str(folder)},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        told: dict[str, Any] = json.loads(done.stdout)
        assert "defect" not in told.get("shim.log", ""), "whatever pods do"
        return told
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", scenes.SCENES)
def test_pods_reach_what_is_outside(usual: dict[str, str], name: str) -> None:
    assert usual[name] == "", usual["shim.log"]


@pytest.mark.parametrize("name", naming.SCENES)
def test_the_resolver_knows_the_names_of_the_cluster(named: dict[str, str], name: str) -> None:
    assert named[name] == "", named["shim.log"]


@pytest.mark.parametrize("name", hostile.SCENES)
def test_a_hostile_pod_harms_no_other(attacked: dict[str, str], name: str) -> None:
    assert attacked[name] == "", attacked["shim.log"]


@pytest.mark.parametrize("who", WHO)
def test_without_a_way_out_pods_are_kept_to_themselves(who: str) -> None:
    """And where the kernel cannot, that is told once."""
    told = play("closed", who)
    assert told["none"] == {"network": "none"}
    assert told["lacking"]["network"] == "none"
    assert "Protocol not supported" in told["lacking"]["networkReason"]
    assert len([line for line in told["told"] if "each other and nothing else" in line]) == 1
