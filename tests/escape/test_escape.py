"""Attempts to get out of a pod, as root and as an unprivileged user: each has to fail."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.node_cluster import Cluster, are_limits_enforced, cluster, eventually
from tests.escape import attempts

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")

PROCESSES, LAYER = 100, 32 << 20
_SECONDS = 240.0
SECRET = "only-for-the-other-pod"


def test_there_are_enough_attempts() -> None:
    assert len(attempts.ATTEMPTS) >= 40


def listeners(folder: Path) -> tuple[list[socket.socket], dict[str, Any]]:
    """What a pod must not reach, and where an attacker would look for it."""
    port = socket.create_server(("0.0.0.0", 0))
    abstract, path = f"trainyard-escape-{os.getpid()}", f"{folder}/machine.sock"
    made = [port]
    for address in (f"\0{abstract}", path):
        made.append(socket.socket(socket.AF_UNIX))
        made[-1].bind(address)
        made[-1].listen()
    number = port.getsockname()[1]
    return made, {"port": number, "abstract": abstract, "socket": path, "address": own_address()}


def own_address() -> str:
    """Of the machine on some network; its loopback where it is on none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


async def try_all(folder: Path, isolation: str) -> None:
    """Every attempt in one pod; ``folder`` is on the machine's own file system."""
    work, canary = folder / "work", folder / "canary"
    work.mkdir()
    canary.write_text("untouched")
    opened, situation = listeners(folder)
    situation |= {
        "canary": str(canary),
        "state": str(folder / "state"),
        "process": os.getpid(),
        "secret": SECRET[::-1],
        "device": canary.stat().st_dev,
        "processes": PROCESSES + 300,
        "layer": LAYER,
    }
    source = Path(attempts.__file__).read_text()
    (work / "attempts.py").write_text(source)
    async with cluster(folder / "state", working_dir=str(work), pids_limit=PROCESSES) as node:
        assert node.agent.isolation == isolation
        answers = await outcomes(node, situation)
    for one in opened:
        one.close()
    assert answers.keys() == attempts.ATTEMPTS.keys()
    succeeded = [name for name, answer in answers.items() if answer is True]
    assert not succeeded, succeeded
    assert canary.read_text() == "untouched"
    assert sorted(path.name for path in work.iterdir()) == ["attempts.py"]


async def outcomes(node: Cluster, situation: dict[str, Any]) -> dict[str, Any]:
    """Beside another pod, which goes on as if nothing had been."""
    other = {"env": [{"name": "SECRET", "value": SECRET}]}
    await node.create("other", ["sleep", "600"], container=other)
    await node.phase("other", "Running")
    await node.create(
        "attacker",
        [sys.executable, "attempts.py"],
        container={
            "env": [{"name": "SITUATION", "value": json.dumps(situation)}],
            "resources": {"limits": {"ephemeral-storage": LAYER}},
        },
    )
    await eventually(lambda: node.pod("attacker")["status"]["phase"] == "Succeeded", _SECONDS)
    assert node.pod("other")["status"]["phase"] == "Running"
    if node.agent.isolation == "root" and are_limits_enforced():
        await take_all_memory(node)
    assert await node.exec("other", "echo alive") == (0, "alive\n")
    answers: dict[str, Any] = json.loads(await node.log("attacker"))
    return answers


async def take_all_memory(node: Cluster) -> None:
    limits = {"resources": {"limits": {"memory": "64Mi"}}}
    pod = await node.run("hungry", [sys.executable, "-c", "bytearray(1 << 30)"], container=limits)
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["reason"] == "OOMKilled", ended


@pytest.mark.parametrize("who", ["root", "another user", "root without privileges"])
def test_every_attempt_fails(who: str) -> None:
    isolation = "root" if who == "root" else "rootless"
    folder = Path("/var/tmp") / f"trainyard-escape-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o777)
    argv = [sys.executable, "-m", __name__, isolation, str(folder / "machine")]
    if who == "another user":
        argv = [sys.executable, "-m", "tests.embedded.as_user", *argv]
    elif who == "root without privileges":  # as in many containers
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv")
        argv = ["setpriv", "--bounding-set", "-sys_admin", *argv]
    try:
        result = subprocess.run(
            argv,
            env={**os.environ, "PYTHONPATH": "src", "HOME": str(folder)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert result.returncode == 0, result.stderr
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)


if __name__ == "__main__":
    machine = Path(sys.argv[2])
    machine.mkdir()
    asyncio.run(try_all(machine, sys.argv[1]))
