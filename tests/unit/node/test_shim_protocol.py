"""The shim's protocol: what is written is read back, and no message ends the shim."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from trainyard.embedded.node import shim_process
from trainyard.embedded.node.shim_process import ShimHandle, start_shim
from trainyard.podruntime import protocol as p
from trainyard.podruntime import wire

PROGRAM = p.Program(("sh", "-c", "exit 0"), {"A": "1"}, "/", user=5, groups=(1, 2), gpus=(0,))
STATE = p.ContainerState("uid", "main", 1, 77, "exited", 12, 13, 137, 9, gpus=(3,))
REQUESTS: list[p.Request] = [
    p.AddPod("uid", "host"),
    p.AddTmpfs("uid", "/x", 0),
    p.Start("uid", "main", 0, "/log", PROGRAM, p.Root((p.Bind("/a", "/b", True),), work="/w")),
    p.Start("uid", "main", 0, "/log", PROGRAM),
    p.Exec("uid", "main", "session", ("ls",), tty=True),
    p.EndSession("session"),
    p.Signal("uid", "main", 15),
    p.Kill("uid"),
    p.RemovePod("uid"),
    p.OpenSocket("uid"),
    p.SetForwards((p.Forward("10.0.0.1", 80, (("10.0.0.2", 8080),)),)),
    p.Shutdown(),
]
EVENTS: list[p.Event] = [
    p.Hello(1, "root", "", "10.0.0.1", (p.PodState("uid", "10.0.0.2", (STATE,)),), 2),
    p.Failed("why"),
    STATE,
    p.SessionEnded("session", 0),
]


@pytest.mark.parametrize("message", REQUESTS, ids=p.name_of)
def test_a_request_is_read_as_it_was_written(message: p.Request) -> None:
    found = p.read_request(wire.parse(wire.encode(p.request(3, message))[4:]))
    assert (type(found), found) == (type(message), message)


@pytest.mark.parametrize("message", EVENTS, ids=p.name_of)
def test_an_event_is_read_as_it_was_written(message: p.Event) -> None:
    found = p.read_event(wire.parse(wire.encode(p.event(message))[4:]))
    assert (type(found), found) == (type(message), message)


START = p.request(1, REQUESTS[2])
WRONG: list[tuple[Any, str]] = [
    ({"op": "dance"}, "op is 'dance', not one of pod, "),
    ({"op": ["pod"]}, "op is ['pod'], not one of pod, "),
    ({}, "op is None, not one of pod, "),
    ({"op": "pod", "pod": "uid"}, "AddPod: hostname is missing"),
    ({"op": "signal", "pod": "uid", "name": "main", "number": "15"}, "number is '15', not int"),
    ({"op": "signal", "pod": "uid", "name": "main", "number": True}, "number is True, not int"),
    ({**START, "program": 7}, "program is not an object"),
    ({**START, "program": {**START["program"], "argv": ["a", 1]}}, "program.argv[1] is 1, not str"),
    ({**START, "program": {**START["program"], "env": {"A": None}}}, "program.env[A] is None"),
    ({**START, "root": {"binds": [{"target": "/"}]}}, "Bind: root.binds[0].source is missing"),
    (
        {"op": "forward", "forwards": [{"address": "", "port": 1, "endpoints": [["a"]]}]},
        "forwards[0].endpoints[0] is ['a'], not tuple",
    ),
]


@pytest.mark.parametrize(("raw", "text"), WRONG, ids=[text for _, text in WRONG])
def test_a_wrong_message_is_refused_by_the_name_of_its_field(raw: p.Raw, text: str) -> None:
    with pytest.raises(p.ProtocolError) as refused:
        p.read_request(raw)
    assert text in str(refused.value)


def frame(body: bytes) -> bytes:
    return struct.pack("=I", len(body)) + body


@pytest.fixture
def shim(tmp_path: Path) -> Iterator[ShimHandle]:
    handle = start_shim(tmp_path, isolation="plain", die_with_parent=True)
    handle.ready()
    yield handle
    handle.kill()


def ask(shim: ShimHandle, data: bytes) -> p.Raw:
    """Send bytes, and return the next message of the shim."""
    shim.connection.sendall(data)
    shim.connection.settimeout(120)
    frames: list[bytes] | None = []
    while frames == []:
        frames = shim.decoder.receive(shim.connection)
    assert frames, "the shim has ended"
    return wire.parse(frames[0])


@pytest.mark.parametrize(
    ("body", "number"),
    [
        (b"no json", 0),
        (b"[1]", 0),
        (b"\xff", 0),
        (json.dumps({"op": "pod"}).encode(), 0),
        (json.dumps({"op": "pod", "id": "x"}).encode(), 0),
        (json.dumps({"op": "kill", "id": 7, "descriptors": "x"}).encode(), 7),
        (json.dumps({"op": "nonsense", "id": 8}).encode(), 8),
        (json.dumps({"op": "signal", "id": 9, "pod": "?", "name": "", "number": 1}).encode(), 9),
    ],
)
def test_a_message_that_makes_no_sense_is_refused_alone(
    shim: ShimHandle, body: bytes, number: int
) -> None:
    answer = ask(shim, frame(body))
    assert answer["id"] == number
    assert answer["error"]
    made = ask(shim, wire.encode(p.request(10, p.AddPod("uid", "host"))))
    assert made["id"] == 10
    assert made["address"].startswith("127.")


def test_it_runs_standing_alone_and_survives_a_broken_stream(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "trainyard.podruntime", str(tmp_path), "--isolation", "plain"]
    with Popen(argv) as process:
        try:
            while not (tmp_path / "shim.sock").exists():
                assert process.poll() is None
            broken = start_shim(tmp_path, die_with_parent=False)
            with broken.connection:
                broken.connection.sendall(b"\xff" * 8)
                while broken.decoder.receive(broken.connection) is not None:
                    pass
            found = start_shim(tmp_path, die_with_parent=False)
            assert found.adopted
            assert found.ready().isolation == "plain"
            found.kill()
            assert process.wait(120) == 0
        finally:
            process.kill()


def test_a_shim_that_does_not_answer_is_named_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim_process, "_READY_SECONDS", 0.05)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(shim_process.ShimFailed, match=f"kill -9 {os.getpid()}"):
        ShimHandle(str(tmp_path), ours, pid=0, adopted=True).ready()
