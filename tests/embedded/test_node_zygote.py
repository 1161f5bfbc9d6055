"""A pod's first process: fresh, closed to the pod, and replaced when what it comes from dies."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import uuid
from pathlib import Path

import pytest

from tests.embedded.node_cluster import Cluster, cluster, is_alive
from trainyard.embedded.node.pod_runtime_client import PodRuntimeClient
from trainyard.embedded.node.pod_runtime_process import start_pod_runtime
from trainyard.podruntime.protocol import AddPod

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

ISOLATIONS = pytest.mark.parametrize("isolation", ["namespaces", "plain"])
_PIDFD_GETFD = 438

JUNK_INTO_ALL_PIPES = """
for f in /proc/1/fd/*; do
    case $(readlink $f) in pipe:*|socket:*|*shim.log) echo '{"code": "x"}' > $f;; esac
done 2>/dev/null
sleep 0.2
"""


def children(pid: int, name: str = "") -> list[int]:
    """Living children of a process, by their name as in ``ps``."""
    found = []
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        with contextlib.suppress(OSError):
            if name in Path(f"/proc/{child}/comm").read_text() and is_alive(child):
                found.append(child)
    return found


async def zygote_of(pod_runtime: int) -> int:
    """A child that has just been forked has the zygote's name for a moment."""
    while True:
        found = children(pod_runtime, "pod-zygote")
        if len(found) == 1:
            return found[0]
        await asyncio.sleep(0.01)


async def test_first_processes_are_ready_before_a_pod_asks(tmp_path: Path) -> None:
    handle = start_pod_runtime(tmp_path / "state", die_with_parent=True)
    async with cluster(tmp_path / "state", handle=handle) as node, asyncio.timeout(120):
        await spares_of(handle.pid, 8)
        assert await node.shell("takes-one", "echo well") == "well\n"
        await spares_of(handle.pid, 8)


async def test_spares_are_made_too_while_a_pod_waits_for_its_first_container(
    tmp_path: Path,
) -> None:
    handle = start_pod_runtime(str(tmp_path / "state"), die_with_parent=True)
    runtime = PodRuntimeClient(handle)
    try:
        async with asyncio.timeout(120):
            await runtime.request(AddPod("pod-uid", "waits", ""))
            await spares_of(handle.pid, 8)
    finally:
        runtime.close()
        handle.kill()


async def spares_of(pod_runtime: int, count: int) -> list[int]:
    while True:
        found = children(pod_runtime, "pod-spare")
        if len(found) == count:
            return found
        await asyncio.sleep(0.05)


async def test_a_pod_that_writes_into_everything_it_finds_harms_nobody(tmp_path: Path) -> None:
    async with cluster(tmp_path / "state") as node:
        await node.create("other", ["sleep", "1000"])
        await node.phase("other", "Running")
        await node.run("bad", ["sh", "-c", JUNK_INTO_ALL_PIPES])
        assert await node.exec("other", "echo well") == (0, "well\n")
        assert await node.shell("later", "echo well") == "well\n"


async def test_a_privileged_pod_that_does_so_ends_itself_alone(tmp_path: Path) -> None:
    async with cluster(tmp_path / "state") as node:
        await node.create("other", ["sleep", "1000"])
        await node.phase("other", "Running")
        privileged = {"container": {"securityContext": {"privileged": True}}}
        await node.run("bad", ["sh", "-c", JUNK_INTO_ALL_PIPES], **privileged)
        assert await node.exec("other", "echo well") == (0, "well\n")
        assert await node.shell("later", "echo well") == "well\n"


@ISOLATIONS
async def test_programs_and_commands_inherit_no_descriptor(tmp_path: Path, isolation: str) -> None:
    script = "for n in $(seq 0 99); do test -e /proc/self/fd/$n && echo $n; done; true"
    async with cluster(tmp_path / "state", isolation=isolation) as node:  # type: ignore[arg-type]
        await node.create("stays", ["sleep", "1000"])
        await node.phase("stays", "Running")
        assert await node.exec("stays", script) == (0, "0\n1\n2\n")
        user = {"container": {"workingDir": "/", "securityContext": {"runAsUser": 4242}}}
        for name, spec in (("root", {}), ("user", user)):
            assert await node.shell(name, script, **spec) == "0\n1\n2\n"


@ISOLATIONS
async def test_a_first_process_holds_nothing_of_the_caller_nor_of_another_pod(
    tmp_path: Path, isolation: str
) -> None:
    secret, other = (uuid.uuid4().hex.encode() for _ in range(2))
    handle = start_pod_runtime(tmp_path / "state", isolation=isolation, die_with_parent=True)  # type: ignore[arg-type]
    async with cluster(tmp_path / "state", handle=handle) as node:
        env = {"container": {"env": [{"name": "ITS", "value": other.decode()}]}}
        await node.create("first", ["sleep", "1000"], **env)
        await node.phase("first", "Running")
        first = children(handle.pid, "pod-init")
        await node.create("second", ["sleep", "1000"])
        await node.phase("second", "Running")
        (second,) = set(children(handle.pid, "pod-init")) - set(first)
        zygote = await zygote_of(handle.pid)
        assert other in memory(first[0]), "the search finds what is there"
        for pid in (zygote, second):
            assert secret not in memory(pid)
            assert other not in memory(pid)


def memory(pid: int) -> bytes:
    """All that a process has, the code of programs and libraries left out."""
    found = b""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            if rights.startswith("rw"):
                start, end = (int(word, 16) for word in span.split("-"))
                file.seek(start)
                try:
                    found += file.read(end - start)
                except OSError:
                    continue
    return found


async def test_the_first_process_is_closed_to_root_in_the_pod(tmp_path: Path) -> None:
    script = "cat /proc/1/environ; ls -l /proc/1/fd/; cat /proc/1/maps; head -c 1 /proc/1/mem; true"
    async with cluster(tmp_path / "state") as node:
        text = await node.shell("looks", f"({script}) 2>&1")
        assert text.count("Permission denied") >= 4, text
        assert (
            await node.shell("names", "tr '\\0' '\\n' < /proc/1/cmdline | head -1") == "pod-init\n"
        )


@ISOLATIONS
async def test_a_zygote_that_is_killed_is_replaced_and_no_start_is_lost(
    tmp_path: Path, isolation: str
) -> None:
    handle = start_pod_runtime(tmp_path / "state", isolation=isolation, die_with_parent=True)  # type: ignore[arg-type]
    async with cluster(tmp_path / "state", handle=handle) as node:
        for number in range(12):
            await node.create(f"job-{number}", ["sh", "-c", f"echo {number}"])
            if number % 4 == 0:
                await asyncio.sleep(0.01 * number)
                os.kill(await zygote_of(handle.pid), signal.SIGKILL)
        for number in range(12):
            await node.phase(f"job-{number}", "Succeeded")
            assert await node.log(f"job-{number}") == f"{number}\n"


async def test_a_relay_that_is_killed_is_replaced_with_its_forwards(tmp_path: Path) -> None:
    serve = (
        "import socket\ns=socket.create_server(('',80))\n"
        "while True:\n c,_=s.accept(); c.sendall(b'hi'); c.close()"
    )
    ask = "import socket; print(socket.create_connection(('10.96.7.7',80)).recv(9))"
    handle = start_pod_runtime(tmp_path / "state", die_with_parent=True)
    async with cluster(tmp_path / "state", handle=handle) as node:
        metadata = {"name": "web", "namespace": "default"}
        spec = {
            "clusterIP": "10.96.7.7",
            "selector": {"a": "b"},
            "ports": [{"port": 80, "targetPort": 80}],
        }
        await node.registry.create("services", {"metadata": metadata, "spec": spec})
        await node.create("web", ["python3", "-c", serve], metadata={"labels": {"a": "b"}})
        await node.phase("web", "Running")
        assert await node.shell("before", f'python3 -c "{ask}"') == "b'hi'\n"
        (relay,) = children(handle.pid, "trainyard-relay")
        os.kill(relay, signal.SIGKILL)
        retry = f'until python3 -c "{ask}"; do sleep 0.1; done 2>/dev/null'
        assert await node.shell("after", retry) == "b'hi'\n"
        assert children(handle.pid, "trainyard-relay") != [relay]
    assert "a defect" not in (tmp_path / "state" / "shim.log").read_text()


def write_as_another(pid: int, data: bytes) -> None:
    """Into the channel of a first process, by the means that root of the machine has."""
    libc = ctypes.CDLL(None, use_errno=True)
    target = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            if os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                fd = libc.syscall(_PIDFD_GETFD, target, int(name), 0)
                assert fd >= 0, os.strerror(ctypes.get_errno())
                with socket.socket(fileno=fd) as taken:
                    taken.send(data)
    finally:
        os.close(target)


FORGED: list[tuple[str, bytes]] = [
    ("another's", b'{"code":0}'),
    ("no JSON", b"x\n"),
    ("wrong types", b'{"code":"0"}'),
    ("deep", b"[" * 10_000),
    ("long", b" " * 100_000),
    ("empty", b""),
]


@ISOLATIONS
@pytest.mark.parametrize(("what", "data"), FORGED, ids=[what for what, _ in FORGED])
async def test_junk_in_a_channel_ends_its_container_alone(
    tmp_path: Path, isolation: str, what: str, data: bytes
) -> None:
    handle = start_pod_runtime(tmp_path / "state", isolation=isolation, die_with_parent=True)  # type: ignore[arg-type]
    async with cluster(tmp_path / "state", handle=handle) as node:
        await node.create("hit", ["sleep", "1000"])
        await node.phase("hit", "Running")
        (first,) = children(handle.pid, "pod-init")
        await node.create("other", ["sleep", "1000"])
        await node.phase("other", "Running")
        write_as_another(first, data)
        await ended_by_junk(node, "hit")
        assert await node.exec("other", "echo well") == (0, "well\n")
        assert await node.shell("later", "echo well") == "well\n"


async def ended_by_junk(node: Cluster, name: str) -> None:
    pod = await node.phase(name, "Failed")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 128
    assert "what came from it cannot be" in ended["message"]


async def test_a_container_ended_by_junk_counts_as_failed_and_restarts(tmp_path: Path) -> None:
    handle = start_pod_runtime(tmp_path / "state", die_with_parent=True)
    async with cluster(tmp_path / "state", handle=handle, restart_delay=0.01) as node:
        await node.create("hit", ["sleep", "1000"], restartPolicy="OnFailure")
        await node.phase("hit", "Running")
        write_as_another(children(handle.pid, "pod-init")[0], b"junk")

        def has_restarted(pod: dict) -> bool:
            (status,) = pod["status"]["containerStatuses"]
            return status["restartCount"] == 1 and "running" in status["state"]

        pod = await node.until("hit", has_restarted)
        ended = pod["status"]["containerStatuses"][0]["lastState"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (128, "Error")
