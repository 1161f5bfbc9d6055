"""Where a limit is reached, a container fails and says which one, and the node goes on."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.node_cluster import cluster, eventually
from tests.embedded.test_node_zygote import children, zygote_of
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.node.pod_runtime_process import start_pod_runtime

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
_GROUPS = Path("/sys/fs/cgroup")


@ROOT
@pytest.mark.parametrize("isolation", ["namespaces", "plain"])
async def test_too_many_open_files_keep_out_the_pod_that_is_one_too_many(
    tmp_path: Path, isolation: str
) -> None:
    handle = start_pod_runtime(tmp_path / "state", isolation=isolation, die_with_parent=True)  # type: ignore[arg-type]
    async with cluster(tmp_path / "state", handle=handle) as node:
        await zygote_of(handle.pid)
        limit = len(os.listdir(f"/proc/{handle.pid}/fd")) + 60
        resource.prlimit(handle.pid, resource.RLIMIT_NOFILE, (limit, limit))
        ended: list[str] = []
        while not ended:
            name = f"job-{len(node.registry.list('pods'))}"
            await node.create(name, ["sleep", "1000"])
            pod = await node.until(
                name,
                lambda pod: (
                    pod["status"]["phase"] in ("Running", "Failed")
                    or bool(node.events("NodeError"))
                ),
            )
            # The limit is met by the pod's namespaces, which are tried again, or by its container.
            ended += node.events("NodeError")
            if pod["status"]["phase"] == "Failed":
                state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
                assert (state["exitCode"], state["reason"]) == (128, "ContainerCannotRun")
                ended.append(state["message"])
        assert f"RLIMIT_NOFILE permits {limit} open files" in ended[0]
        await node.phase("job-1", "Running")
        for name in [pod["metadata"]["name"] for pod in node.registry.list("pods")]:
            if name == "job-1":
                continue
            await node.registry.delete("pods", "default", name, Deletion(grace_seconds=0))
            await node.gone(name)
        descriptors = Path(f"/proc/{handle.pid}/fd")
        await eventually(lambda: len(os.listdir(descriptors)) < limit - 20)
        assert await node.exec("job-1", "echo well") == (0, "well\n")


@contextlib.contextmanager
def full_group() -> Iterator[Path]:
    """A control group that permits no process more than are in it."""
    top = _GROUPS if (_GROUPS / "cgroup.controllers").exists() else _GROUPS / "pids"
    folder = top / f"test-{os.getpid()}"
    try:
        if (top / "cgroup.subtree_control").exists():
            (top / "cgroup.subtree_control").write_text("+pids")
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"control groups cannot be written: {error}")
    try:
        if not (folder / "pids.max").exists():
            pytest.skip("control groups do not count processes here")
        (folder / "pids.max").write_text("1")
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


@ROOT
async def test_too_many_processes_fail_the_container_that_is_one_too_many(tmp_path: Path) -> None:
    handle = start_pod_runtime(tmp_path / "state", die_with_parent=True)
    with full_group() as group:
        async with cluster(tmp_path / "state", handle=handle) as node:
            await node.create("first", ["sleep", "1000"])
            await node.phase("first", "Running")
            (group / "cgroup.procs").write_text(str(await zygote_of(handle.pid)))
            phase, number = "", 0
            while phase != "Failed":  # some first processes are made ahead
                number += 1
                pod = await node.run(f"job-{number}", ["true"])
                phase = pod["status"]["phase"]
            ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
            assert ended["exitCode"] == 128
            assert "no more processes or threads are permitted" in ended["message"]
            assert f"{group} permits 1 processes" in ended["message"]
            (group / "pids.max").write_text("max")
            assert await node.shell("later", "echo well") == "well\n"
        await eventually(lambda: not (group / "cgroup.procs").read_text())


@ROOT
async def test_a_listener_of_the_relay_outlives_a_want_of_open_files(tmp_path: Path) -> None:
    serve = (
        "import socket\ns=socket.create_server(('',80))\n"
        "while True:\n c,_=s.accept(); c.sendall(b'hi'); c.close()"
    )
    flood = (
        "import socket\nfor n in range(60):\n"
        " try: s=socket.create_connection(('10.96.7.8',80)); globals()[f's{n}']=s\n"
        " except OSError: pass\n"
    )
    ask = "import socket; print(socket.create_connection(('10.96.7.8',80)).recv(9))"
    handle = start_pod_runtime(tmp_path / "state", die_with_parent=True)
    async with cluster(tmp_path / "state", handle=handle) as node:
        spec = {"clusterIP": "10.96.7.8", "selector": {"a": "b"}, "ports": [{"port": 80}]}
        metadata = {"name": "web", "namespace": "default"}
        await node.registry.create("services", {"metadata": metadata, "spec": spec})
        await node.create("web", ["python3", "-c", serve], metadata={"labels": {"a": "b"}})
        await node.phase("web", "Running")
        await eventually(lambda: bool(children(handle.pid, "trainyard-relay")))
        (relay,) = children(handle.pid, "trainyard-relay")
        assert await node.shell("before", f'python3 -c "{ask}"') == "b'hi'\n"
        resource.prlimit(relay, resource.RLIMIT_NOFILE, (24, 24))
        await node.run("floods", ["python3", "-c", flood])
        retry = f'until python3 -c "{ask}" | grep hi; do sleep 0.1; done 2>/dev/null'
        assert await node.shell("after", retry) == "b'hi'\n"
        assert children(handle.pid, "trainyard-relay") == [relay]
