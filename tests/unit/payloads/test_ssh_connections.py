"""A link to a replica that is not there always has a reason, and what is waited for is named."""

from __future__ import annotations

import queue
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from tests.unit.lifecycle.world import World, deepspeed
from trainyard.payloads.launch.ssh_connections import (
    LaunchEvent,
    LaunchProgress,
    ReplicaConnection,
    describe_missing_replicas,
    describe_session_end,
)


def link(host: str, port: int) -> tuple[ReplicaConnection, queue.SimpleQueue[LaunchEvent]]:
    """A link that has not been started."""
    events: queue.SimpleQueue[LaunchEvent] = queue.SimpleQueue()
    return ReplicaConnection(host, (host, port), events), events


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_refused_connection_is_the_reason() -> None:
    found, _ = link("127.0.0.1", free_port())
    assert not found.answers()
    assert describe_missing_replicas([found]) == "waiting for 127.0.0.1: Connection refused"


def test_an_unknown_host_is_the_reason() -> None:
    found, _ = link("no-such-host.invalid", 22)
    assert not found.answers()
    assert "no-such-host.invalid: its name cannot be found: " in describe_missing_replicas([found])


def test_something_else_than_ssh_is_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found, _ = link("127.0.0.1", port)

        def greet() -> None:
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=greet)
        thread.start()
        assert not found.answers()
        thread.join()
    assert found.why == f"something else than ssh answers on port {port}"


def test_a_link_outlives_whatever_goes_wrong_and_tells_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A thread that ended, for want of a process or of the program, would never tell."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as server:
        found, _ = link("127.0.0.1", server.getsockname()[1])
        found.start()
        for _ in range(3):
            connection, _ = server.accept()
            connection.sendall(b"SSH-2.0-test\r\n")
            connection.close()
    assert found.is_alive()
    assert found.why


@pytest.mark.parametrize(
    ("code", "said", "reason"),
    [
        (255, "Permission denied (publickey).", "Permission denied (publickey)."),
        (255, "", "the connection was closed"),
        (3, "", "its session ended with exit code 3; a start-up file of the shell may end it"),
        (
            127,
            "sh: python3: not found",
            "its session ended with exit code 127: sh: python3: not found",
        ),
        (-9, "", "ssh answers, but no session began within 30 s"),
    ],
)
def test_a_session_that_never_began_has_a_reason(code: int, said: str, reason: str) -> None:
    assert describe_session_end(code, said) == reason


def test_hosts_with_the_same_reason_are_told_together() -> None:
    links = [link(f"worker-{number}", 22)[0] for number in range(6)]
    for each in links[:5]:
        each.reason = "Connection refused"
    links[5].reason = "No route to host"
    assert describe_missing_replicas(links) == (
        "waiting for worker-0, worker-1, worker-2 and 2 more: Connection refused; "
        "for worker-5: No route to host"
    )


def test_words_are_there_for_the_probe_until_the_launch_has_started(tmp_path: Path) -> None:
    words = LaunchProgress(tmp_path)
    words.wait("waiting for worker-1: Connection refused")
    expected = "trainyard: waiting for worker-1: Connection refused\n"
    assert (tmp_path / "waits").read_text() == expected
    assert not (tmp_path / "launched").exists()
    words.done()
    assert (tmp_path / "launched").exists()


def test_a_launch_that_starts_with_a_note_tells_it_once(tmp_path: Path) -> None:
    """By the probe as it is in the pod: it fails once more, and prints the note."""
    world = World(deepspeed()).settle()
    (container,) = world.pods[world.name("0")]["spec"]["containers"]
    probe = container["startupProbe"]["exec"]["command"]
    command = [each.replace("/t9k/run", str(tmp_path)) for each in probe]

    def answer() -> tuple[bool, str]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.returncode == 0, done.stdout

    words = LaunchProgress(tmp_path)
    assert answer() == (False, "")
    words.note = "preflight: torch differs: 2.3 on worker-0; 2.1 on worker-1"
    words.wait("deepspeed was started, but no rank has begun")
    assert answer() == (False, "trainyard: deepspeed was started, but no rank has begun\n")
    for _ in range(2):  # once for each rank that starts
        words.done()
    assert answer() == (False, f"trainyard: {words.note}\n")
    words.done()
    assert answer()[0]


def test_a_full_folder_keeps_nobody_from_launching(tmp_path: Path) -> None:
    LaunchProgress(tmp_path / "nowhere").done()
