"""Nothing of a pod survives what should end it, and nothing is lost that should survive."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.node_cluster import (
    cluster,
    eventually,
    is_alive,
    processes_with,
)
from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.node.pod_runtime_process import start_pod_runtime
from trainyard.embedded.registry import Registry
from trainyard.embedded.storage.store import Store
from trainyard.schema.errors import TrainyardError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

ESCAPES = "setsid sh -c 'setsid sleep 1000 & exec sleep 1000' & exec sleep 1000"


@pytest.fixture
def marker() -> str:
    return f"marker-{uuid.uuid4().hex}"


class Owner:
    """A node owner in a process of its own."""

    def __init__(self, state_dir: Path, mode: str, isolation: str, marker: str) -> None:
        self.state_dir = state_dir
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.embedded.node_owner", str(state_dir), mode, isolation],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": "src", "PYTHON_MARKER": marker},
        )
        self.pod_runtime = 0

    def start(self, pods: dict[str, list[str]]) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(pods).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the owner failed"
        self.pod_runtime = int(line)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def owners(marker: str) -> Iterator[list[Owner]]:
    started: list[Owner] = []
    yield started
    for owner in started:
        owner.kill()
    for pid in processes_with(marker):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("isolation", ["namespaces", "plain"])
async def test_killing_the_owner_of_a_run_leaves_nothing(
    tmp_path: Path, marker: str, owners: list[Owner], isolation: str
) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    owner = Owner(tmp_path / "state", "run", isolation, marker)
    owners.append(owner)
    owner.start({f"job-{i}": ["sh", "-c", ESCAPES] for i in range(4)})
    assert len(processes_with(marker)) >= 4 * 3
    owner.kill()
    await eventually(lambda: not processes_with(marker))
    # The namespaces had no other holders than these processes, and are gone with them.
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert not Path("/sys/class/net/trainyard0").exists()


async def test_pods_of_a_background_cluster_survive_it_and_are_found_again(
    tmp_path: Path, marker: str, owners: list[Owner]
) -> None:
    state = tmp_path / "state"
    owner = Owner(state, "up", "auto", marker)
    owners.append(owner)
    flag = tmp_path / "flag"
    wait = f"until test -e {flag}; do sleep 0.01; done"
    owner.start(
        {
            "goes-on": ["sh", "-c", f"{wait}; sleep 0.3; echo end; exit 4"],
            "ends-meanwhile": ["sh", "-c", f"{wait}; exit 3"],
            "killed": ["sh", "-c", "sleep 1000"],
        }
    )
    owner.kill()
    assert is_alive(owner.pod_runtime)
    flag.touch()
    await eventually(lambda: bool(list(state.glob("pods/*ends-meanwhile*/main/0.exit"))))

    handle = start_pod_runtime(state, die_with_parent=False)
    assert handle.adopted
    registry = Registry(Store(state / "cluster.db"), resources=RESOURCES)
    async with cluster(state, handle=handle, registry=registry) as node:
        for name, code in (("goes-on", 4), ("ends-meanwhile", 3)):
            pod = await node.phase(name, "Failed")
            ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
            assert ended["exitCode"] == code
        assert await node.log("goes-on") == "end\n"
        assert (await node.phase("killed", "Running"))["status"]["podIP"]
        assert await node.exec("killed", "echo reached") == (0, "reached\n")
    await registry.close()
    await eventually(lambda: not is_alive(owner.pod_runtime))
    assert not processes_with(marker)


async def test_pods_lost_with_their_shim_are_reported_lost(
    tmp_path: Path, marker: str, owners: list[Owner]
) -> None:
    state = tmp_path / "state"
    owner = Owner(state, "up", "auto", marker)
    owners.append(owner)
    owner.start({"lost": ["sleep", "1000"]})
    owner.kill()
    os.kill(owner.pod_runtime, signal.SIGKILL)
    await eventually(lambda: not processes_with(marker))
    handle = start_pod_runtime(state, die_with_parent=False)
    assert not handle.adopted
    registry = Registry(Store(state / "cluster.db"), resources=RESOURCES)
    async with cluster(state, handle=handle, registry=registry) as node:
        pod = await node.phase("lost", "Failed")
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
    await registry.close()


@pytest.mark.parametrize("isolation", ["namespaces", "plain"])
async def test_killing_the_program_takes_its_whole_tree_along(
    tmp_path: Path, marker: str, isolation: str
) -> None:
    async with cluster(tmp_path / "state", isolation=isolation) as node:  # type: ignore[arg-type]
        env = [{"name": "MARKER", "value": marker}]
        await node.create("job-0", ["sh", "-c", ESCAPES], container={"env": env})
        await node.phase("job-0", "Running")
        await eventually(lambda: len(processes_with(marker)) == 3)
        os.kill(min(processes_with(marker)), signal.SIGKILL)
        pod = await node.phase("job-0", "Failed")
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["signal"]) == (137, 9)
        assert not processes_with(marker)


@pytest.mark.parametrize("isolation", ["namespaces", "plain"])
async def test_deleting_a_pod_by_force_ends_all_of_it(
    tmp_path: Path, marker: str, isolation: str
) -> None:
    async with cluster(tmp_path / "state", isolation=isolation) as node:  # type: ignore[arg-type]
        env = [{"name": "MARKER", "value": marker}]
        await node.create("job-0", ["sh", "-c", ESCAPES], container={"env": env})
        await node.phase("job-0", "Running")
        await node.registry.delete("pods", "default", "job-0", Deletion(grace_seconds=0))
        await eventually(lambda: not processes_with(marker))


async def test_orphans_in_a_pod_are_reaped(tmp_path: Path) -> None:
    script = "(sleep 0.01 &) ; sleep 0.3; grep -l '^State:.Z' /proc/[0-9]*/status | wc -l"
    async with cluster(tmp_path / "state") as node:
        assert await node.shell("job-0", f"({script}) 2>/dev/null") == "0\n"


async def test_a_chatty_pod_does_not_hold_up_others(tmp_path: Path) -> None:
    async with cluster(tmp_path / "state") as node:
        await node.create("loud", ["sh", "-c", "exec yes a rather long line of output"])
        await node.phase("loud", "Running")
        await node.run("quiet", ["echo", "done"])
        assert node.pod("loud")["status"]["phase"] == "Running"
        assert await node.log("quiet") == "done\n"


async def test_two_hundred_pods_are_killed(tmp_path: Path, marker: str) -> None:
    async with cluster(tmp_path / "state") as node:
        env = [{"name": "MARKER", "value": marker}]
        names = [f"job-{i}" for i in range(200)]
        for name in names:
            await node.create(name, ["sleep", "1000"], container={"env": env})
        for name in names:
            await node.phase(name, "Running")
        for name in names:
            await node.registry.delete("pods", "default", name, Deletion(grace_seconds=0))
        await eventually(lambda: not processes_with(marker))


async def test_when_the_shim_dies_its_pods_are_reported_lost(tmp_path: Path, marker: str) -> None:
    handle = start_pod_runtime(tmp_path / "state", die_with_parent=True)
    failure = pytest.raises(ExceptionGroup, match="unhandled errors")
    with failure as raised:
        async with cluster(tmp_path / "state", handle=handle) as node:
            env = [{"name": "MARKER", "value": marker}]
            await node.create("job-0", ["sh", "-c", ESCAPES], container={"env": env})
            await node.phase("job-0", "Running")
            os.kill(handle.pid, signal.SIGKILL)
            pod = await node.phase("job-0", "Failed")
            ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
            assert ended["reason"] == "ContainerStatusUnknown"
            # The kernel ends them with the shim, but takes its time on a busy machine.
            await eventually(lambda: not processes_with(marker))
            await eventually(lambda: node.task.done())
    assert raised.group_contains(TrainyardError, match="shim process is gone")
