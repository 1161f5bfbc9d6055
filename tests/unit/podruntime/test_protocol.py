"""The shim's protocol: what is written is read back, and no message ends the shim."""

from __future__ import annotations

import json
import socket
import struct
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

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


def wire_format() -> dict[str, dict[str, bool]]:
    """Every message, and every type in one: its fields as sent, and whether one must be there."""
    found: dict[str, dict[str, bool]] = {}

    def note(name: str, kind: Any) -> None:
        found[name] = {wire_name: is_required for _, wire_name, _, is_required in p._fields(kind)}
        for _, _, hint, _ in p._fields(kind):
            for each in (hint, *typing.get_args(hint)):
                if hasattr(each, "_fields"):
                    note(each.__name__, each)

    for kinds in (p._REQUESTS, p._EVENTS):
        for name, kind in kinds.items():
            note(name, kind)
    return found


def test_within_a_wire_version_messages_and_optional_fields_are_only_added() -> None:
    """`wire_7.json` has what the first trainyards with this version sent and read."""
    assert p.VERSION == 7, "a new major version: record its messages in a file of its own"
    now = wire_format()
    for name, fields in json.loads((Path(__file__).parent / "wire_7.json").read_text()).items():
        assert fields.items() <= now[name].items(), name
        added = now[name].keys() - fields.keys()
        assert not any(now[name][field] for field in added), name


def test_a_field_with_another_name_on_the_wire_keeps_it() -> None:
    """Agents and shims of different versions meet."""
    start = p.Start("uid", "debug", 0, "/log", PROGRAM, share_processes_with="main")
    raw = p.request(3, start)
    assert raw["beside"] == "main"
    assert p.read_request(raw) == start


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


class Agent:
    """A connection to a shim, as an agent has it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.decoder = connection, wire.Decoder()
        connection.settimeout(120)

    def receive(self) -> p.Raw | None:
        """The next message; None when the shim has hung up."""
        frames: list[bytes] | None = []
        while frames == []:
            frames = self.decoder.receive(self.connection)
        return wire.parse(frames[0]) if frames else None

    def send(self, data: bytes) -> p.Raw | None:
        """Send bytes, and return the shim's next message."""
        self.connection.sendall(data)
        return self.receive()

    def close(self) -> None:
        self.connection.close()
        self.decoder.close()


def connect(folder: Path) -> Agent:
    """To the shim of ``folder``, once it listens."""
    while (connection := wire.connect(str(folder))) is None:
        pass
    agent = Agent(connection)
    hello = agent.receive()
    assert hello is not None
    assert (hello["event"], hello["isolation"]) == ("hello", "plain")
    return agent


@pytest.fixture
def pod_runtime_folder(tmp_path: Path) -> Iterator[Path]:
    """The state folder of a shim that runs."""
    argv = [sys.executable, "-m", "trainyard.podruntime", str(tmp_path), "--isolation", "plain"]
    with Popen(argv) as process:
        yield tmp_path
        process.terminate()
        assert process.wait(120) == 0


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
    pod_runtime_folder: Path, body: bytes, number: int
) -> None:
    agent = connect(pod_runtime_folder)
    answer = agent.send(frame(body))
    assert answer is not None
    assert answer["id"] == number
    assert answer["error"]
    made = agent.send(wire.encode(p.request(10, p.AddPod("uid", "host"))))
    assert made is not None
    assert made["id"] == 10
    assert made["address"].startswith("127.")
    agent.close()


def test_it_runs_standing_alone_and_survives_a_broken_stream(pod_runtime_folder: Path) -> None:
    broken = connect(pod_runtime_folder)
    assert broken.send(b"\xff" * 8) is None
    broken.close()
    found = connect(pod_runtime_folder)
    answer = found.send(wire.encode(p.request(1, p.AddPod("uid", "host"))))
    assert answer is not None
    assert answer["address"].startswith("127.")
    found.close()
