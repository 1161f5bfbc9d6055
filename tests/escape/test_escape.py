"""Attempts to get out of a pod, as root and as an unprivileged user.

Each has to fail, or docs/security.md says that it is not promised.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.node_cluster import Cluster, eventually
from tests.escape import scenes
from tests.escape.inside import ATTEMPTS
from tests.escape.machine import Machine, situation_of, sockets_of_the_machine
from tests.escape.promises import NOT_PROMISED, SITUATIONS, may_succeed, tried_by
from tests.tools import require

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
ROOT, ANOTHER, BARE = "root", "another user", "root without privileges"
_SECONDS = 240.0


def test_there_are_enough_attempts() -> None:
    assert len(ATTEMPTS) >= 40
    assert NOT_PROMISED.keys() <= ATTEMPTS.keys()


def test_what_is_not_promised_is_told() -> None:
    page = " ".join(Path("docs/security.md").read_text().split())
    phrases = {each.phrase for listed in NOT_PROMISED.values() for each in listed}
    phrases |= {scene.not_promised for scene in scenes.SCENES if scene.not_promised}
    assert [phrase for phrase in sorted(phrases) if phrase not in page] == []


# -- attempts from inside -------------------------------------------------------------------------


async def make_attempts(machine: Machine, who: str) -> None:
    """All of them, in one container of each kind at the same time."""
    async with machine.cluster() as node:
        assert node.agent.isolation == isolation_of(who)
        contexts = SITUATIONS[node.agent.isolation]
        answers = await asyncio.gather(*(outcomes(machine, node, name) for name in contexts))
    broken = [
        f"{who}/{name}: {attempt}"
        for name, answer in zip(contexts, answers, strict=True)
        for attempt, got in answer.items()
        if got is True and not may_succeed(attempt, f"{who}/{name}")
    ]
    assert not broken, broken


def isolation_of(who: str) -> str:
    return "root" if who == ROOT else "rootless"


async def outcomes(machine: Machine, node: Cluster, name: str) -> dict[str, Any]:
    only = tried_by(f"{node.agent.isolation}/{name}")
    container = {
        "env": [{"name": "SITUATION", "value": situation_of(machine, node, only)}],
        "securityContext": SITUATIONS[node.agent.isolation][name],
        "volumeMounts": [
            {"name": "configuration", "mountPath": machine.situation["configuration"]},
            {"name": "claim", "mountPath": machine.situation["read-only"], "readOnly": True},
        ],
    }
    volumes = [
        {"name": "configuration", "configMap": {"name": "escape"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}},
    ]
    data = {"metadata": {"name": "escape", "namespace": "default"}, "data": {"key": "untouched"}}
    if name == "default":
        await node.registry.create("configmaps", data)
    # Who is not root may not get as far as ours.
    python = "/usr/bin/python3" if name == "user" else sys.executable
    argv = [python, "-B", "-m", "inside"]
    await node.create(f"try-{name}", argv, container=container, volumes=volumes)
    await eventually(
        lambda: node.pod(f"try-{name}")["status"]["phase"] in ("Succeeded", "Failed"), _SECONDS
    )
    text = await node.log(f"try-{name}")
    assert node.pod(f"try-{name}")["status"]["phase"] == "Succeeded", (
        text,
        node.pod(f"try-{name}")["status"],
    )
    *told, last = text.splitlines()
    answers: dict[str, Any] = json.loads(last)
    assert answers.keys() == set(only or ATTEMPTS)
    for line in (*told, *(f"{k}: {v}" for k, v in answers.items())):
        print(f"{name}: {line}")
    return answers


# -- the two modes --------------------------------------------------------------------------------


def run(what: str, who: str) -> None:
    """In a process of its own, as this user; prints what it told."""
    top = Path("/var/tmp") / f"trainyard-escape-{os.getpid()}"
    top.mkdir()
    top.chmod(0o777)
    private = top / "private"
    private.write_text("of another user")
    private.chmod(0o600)
    if who != ANOTHER:
        os.chown(private, 4242, 4242)
    argv = [sys.executable, "-m", __name__, what, who, f"{top}/machine"]
    if who == ANOTHER:
        argv = [sys.executable, "-m", "tests.embedded.as_user", *argv]
    elif who == BARE:  # as in many containers
        argv = [require("setpriv"), "--bounding-set", "-sys_admin", *argv]
    try:
        with sockets_of_the_machine(top.name) as given:
            result = subprocess.run(
                [*argv, *given],
                env={**os.environ, "PYTHONPATH": "src", "HOME": str(top)},
                capture_output=True,
                text=True,
                timeout=2 * _SECONDS,
            )
            print(result.stdout)
            assert result.returncode == 0, result.stderr
    finally:
        subprocess.run(["rm", "-rf", str(top)], check=True)


@as_root
@pytest.mark.parametrize("who", [ROOT, ANOTHER, BARE])
def test_every_attempt_fails(who: str) -> None:
    run("attempts", who)


@as_root
@pytest.mark.parametrize("who", [ROOT, ANOTHER])
def test_every_scene_ends_well(who: str) -> None:
    run("scenes", who)


def main(what: str, who: str, folder: str, *given: str) -> None:
    Path(folder).mkdir()
    machine = Machine(Path(folder), list(given))
    try:
        if what == "attempts":
            asyncio.run(make_attempts(machine, who))
        else:
            asyncio.run(scenes.play(machine, isolation_of(who)))
    finally:
        machine.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
