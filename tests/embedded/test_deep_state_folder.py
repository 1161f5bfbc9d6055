"""A state folder whose sockets have paths that are longer than the 107 bytes of a Unix address."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator

import pytest

from tests.embedded.command_line import PATIENCE_SECONDS, CommandLine, job, shell
from tests.tools import require

PORT = 7011
SERVER = f"""
import socket
with socket.create_server(("", {PORT})) as server:
    print("listens", flush=True)
    while True:
        end, _ = server.accept()
        with end:
            end.sendall(end.recv(100).upper())
"""


@pytest.fixture(scope="module")
def trainyard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """A cluster with a replica that runs and answers on a port."""
    folder = tmp_path_factory.mktemp("deep") / ("d" * 75) / ("e" * 75)
    folder.mkdir(parents=True)
    line = CommandLine(folder)
    try:
        line.run("up")
        script = line.manifest("server.yaml", job("server", ["python3", "-uc", SERVER]))
        line.run("submit", "-f", script)
        line.run("wait", "server", "--for", "phase=Running", "--timeout", "300")
        yield line
    finally:
        line.run("down", code=None)
        line.kill_everything()


def kubectl(trainyard: CommandLine) -> list[str]:
    """kubectl, with the cluster's own kubeconfig."""
    return [require("kubectl"), "--kubeconfig", str(trainyard.state / "kubeconfig")]


def pod_of(trainyard: CommandLine) -> str:
    """The name of the replica's pod."""
    names = subprocess.check_output(
        [*kubectl(trainyard), "get", "pods", "-o", "name"], text=True, timeout=PATIENCE_SECONDS
    )
    assert names.count("\n") == 1
    return names.strip()


def test_commands_reach_the_replica(trainyard: CommandLine) -> None:
    assert "listens" in trainyard.run("logs", "server")
    assert trainyard.run(
        "exec", "server", "--", "sh", "-c", "echo from inside; exit 3", code=3
    ) == ("from inside\n")
    assert "server" in trainyard.run("list")


def test_run_has_sockets_there_too(trainyard: CommandLine) -> None:
    file = trainyard.manifest("short.yaml", job("short", shell("echo ran to its end")))
    assert "ran to its end" in trainyard.run("run", "-f", file)


def test_kubectl_reaches_the_replica(trainyard: CommandLine) -> None:
    pod, command = pod_of(trainyard), kubectl(trainyard)

    def answer(*arguments: str) -> str:
        return subprocess.check_output(
            [*command, *arguments], text=True, timeout=PATIENCE_SECONDS
        ).strip()

    assert answer("logs", pod) == "listens"
    assert answer("exec", pod, "--", "echo", "from inside") == "from inside"
    forward = [*command, "port-forward", pod, f":{PORT}", "--address", "127.0.0.1"]
    with subprocess.Popen(forward, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            local = int(process.stdout.readline().split("127.0.0.1:")[1].split()[0])
            with socket.create_connection(("127.0.0.1", local), PATIENCE_SECONDS) as end:
                end.sendall(b"hello")
                assert end.recv(100) == b"HELLO"
        finally:
            process.kill()
