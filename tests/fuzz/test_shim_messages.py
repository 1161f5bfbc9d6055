"""No message ends or stalls the shim, nor makes it keep what it is done with.

Valid requests with something changed, raw bytes and odd descriptors go to a real shim, by its
socket; after each batch it has to start a pod as always. What first processes tell is changed too.
"""

from __future__ import annotations

import errno
import json
import os
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.mutation import mutated, mutated_bytes
from tests.fuzz.seeds import BATCH
from trainyard.podruntime import protocol as p
from trainyard.podruntime import wire
from trainyard.podruntime.processes.child_channel import ChildChannel
from trainyard.podruntime.processes.child_tasks import ChildReport
from trainyard.podruntime.protocol import Attach

PATIENCE_SECONDS = 120.0
_SETTLED = 3
"""Batches after which memory must not grow any more."""
_MADE_AHEAD = 40
"""Descriptors of the pods' networks that are made in advance, eight at most."""
_ENV = {"PATH": os.environ["PATH"]}


def corpus(kind: str, folder: str, rng: random.Random) -> p.Request:
    """A valid request about one of a few pods, which may be there or not."""
    pod, name = rng.choice(("a", "b", "c")), rng.choice(("main", "side"))
    argv = rng.choice((("true",), ("sh", "-c", "echo x; exit 3"), ("sleep", "0.2"), ("none",)))
    binds = (p.Bind(f"{folder}/in", f"{folder}/volume", read_only=True),)
    root = None if kind == "plain" else p.Root(rng.choice(((), binds)), work=folder)
    number = rng.randrange(100)
    log = f"{folder}/logs/{pod}/{name}/{number}.log"
    requests: Sequence[Callable[[], p.Request]] = (
        lambda: p.AddPod(pod, "host"),
        lambda: p.AddPod(pod, "host"),
        lambda: p.AddTmpfs(pod, f"{folder}/tmpfs", 4096),
        lambda: p.Start(pod, name, number, log, p.Program(argv, _ENV, "/"), root),
        lambda: p.Start(pod, name, number, log, p.Program(argv, _ENV, "/"), root),
        lambda: p.Start(
            *(pod, name, number, log, p.Program(argv, _ENV, "/"), root),
            stdin=rng.choice(("", "once", "open")),
            tty=rng.random() < 0.5,
        ),
        lambda: Attach(pod, name, rng.random() < 0.5),
        lambda: p.Exec(pod, name, f"{number}", argv, tty=rng.random() < 0.3),
        lambda: p.EndSession(f"{number}"),
        lambda: p.Signal(pod, name, 15),
        lambda: p.Kill(pod, name),
        lambda: p.RemovePod(pod),
        lambda: p.OpenSocket(pod),
        lambda: p.SetForwards((p.Forward("127.1.2.3", 8080, (("10.0.0.2", 8080),)),)),
    )
    return rng.choice(requests)()


def body(kind: str, folder: str, rng: random.Random) -> bytes:
    """A frame's content."""
    raw: Any = p.request(rng.randrange(1000), corpus(kind, folder, rng), rng.choice((0, 0, 1, 3)))
    if rng.random() < 0.8:
        raw = mutated(raw, rng)
    if isinstance(raw, dict) and raw.get("op") == "shutdown":
        raw["op"] = "stop"
    data = json.dumps(raw).encode()
    data = mutated_bytes(data, rng) if rng.random() < 0.1 else data
    return data.replace(b"shutdown", b"shut")


class Talk:
    """A connection to the shim, and what it says."""

    def __init__(self, folder: Path) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while (found := wire.connect(str(folder))) is None:
            assert time.monotonic() < until
            time.sleep(0.01)
        self._socket = found
        self._socket.settimeout(PATIENCE_SECONDS)
        self._decoder = wire.Decoder()
        self._said: list[p.Raw] = []
        self.hello = p.read_event(self.until(lambda said: said.get("event") == "hello"))

    def send(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        """OSError where the shim has hung up."""
        socket.send_fds(self._socket, [data], list(descriptors))
        self._socket.setblocking(False)
        while frames := self._decoder.receive(self._socket):
            self._said += map(wire.parse, frames)
            self._decoder.close()
        self._socket.settimeout(PATIENCE_SECONDS)

    def until(self, holds: Callable[[p.Raw], bool]) -> p.Raw:
        while True:
            for number, said in enumerate(self._said):
                if holds(said):
                    del self._said[: number + 1]
                    return said
            frames = self._decoder.receive(self._socket)
            assert frames is not None, "the shim has hung up, or has ended"
            self._said = [wire.parse(frame) for frame in frames]

    def ask(self, request: p.Request, number: int) -> p.Raw:
        self.send(wire.encode(p.request(number, request)))
        return self.until(lambda said: said.get("id") == number)

    def close(self) -> None:
        self._socket.close()
        self._decoder.close()


class PodRuntime:
    """A real one in a process of its own."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind
        argv = [sys.executable, "-m", "tests.fuzz.closed_shim", str(folder), "--isolation", kind]
        self._log = (folder / "stderr").open("wb")
        self.process = subprocess.Popen(argv, stderr=self._log)
        self._number = 10_000

    def fed(self, rng: random.Random, count: int) -> None:
        """Send it so many messages; a connection that it closes is replaced."""
        talk = Talk(self.folder)
        for _ in range(count):
            data = body(self.kind, str(self.folder), rng)
            header = rng.choice((len(data),) * 60 + (0, 1 << 31, len(data) + 1))
            try:
                with Descriptors(self.folder, rng) as descriptors:
                    talk.send(struct.pack("=I", header) + data, descriptors)
            except (OSError, ValueError):
                assert self.process.poll() is None
                talk.close()
                talk = Talk(self.folder)
        talk.close()

    def cleaned(self) -> None:
        """Remove all pods, and see that one can be run as ever."""
        talk = Talk(self.folder)
        assert isinstance(talk.hello, p.Hello)
        for pod in talk.hello.pods:
            self._number += 1
            assert "error" not in talk.ask(p.RemovePod(pod.pod), self._number)
        uid, log = f"good-{self._number}", f"{self.folder}/good.log"
        root = None if self.kind == "plain" else p.Root(work=str(self.folder))
        program = p.Program(("sh", "-c", "exit 7"), _ENV, "/")
        requests = (p.AddPod(uid, "h"), p.Start(uid, "good", 0, log, program, root))
        for request in (*requests, p.SetForwards(())):
            self._number += 1
            assert "error" not in talk.ask(request, self._number)
        ended = talk.until(lambda said: said.get("pod") == uid and said.get("state") == "exited")
        assert (ended["code"], ended.get("error")) == (7, None)
        assert "error" not in talk.ask(p.RemovePod(uid), self._number + 1)
        talk.close()

    def memory(self) -> int:
        """Resident, in KiB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self) -> None:
        if self.process.poll() is None:
            talk = Talk(self.folder)
            talk.send(wire.encode(p.request(0, p.Shutdown())))
            talk.close()
        assert self.process.wait(PATIENCE_SECONDS) == 0, (self.folder / "stderr").read_text()
        self._log.close()


class Descriptors:
    """Some to attach, of kinds that nobody asked for; closed afterwards."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._opened: list[int] = []
        for _ in range(rng.choice((0, 0, 0, 0, 1, 3, 3, 8))):
            self._open(folder, rng)

    def _open(self, folder: Path, rng: random.Random) -> None:
        kind = rng.randrange(4)
        if kind == 0:
            self._opened.append(os.open("/dev/null", os.O_RDWR))
        elif kind == 1:
            reader, writer = os.pipe()
            self._opened.append(rng.choice((reader, writer)))
            os.close(reader + writer - self._opened[-1])
        elif kind == 2:
            self._opened.append(os.open(folder, os.O_PATH))
        else:
            ours, theirs = socket.socketpair()
            ours.close()
            self._opened.append(theirs.detach())

    def __enter__(self) -> list[int]:
        return self._opened[:8]

    def __exit__(self, *_: object) -> None:
        for fd in self._opened:
            os.close(fd)


@pytest.fixture(params=["plain", "namespaces"])
def pod_runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PodRuntime]:
    if request.param == "namespaces" and os.geteuid() != 0:
        pytest.skip("needs root, to be kept from writing elsewhere")
    for name in ("volume", "in", "tmpfs"):
        (tmp_path / name).mkdir()
    started = PodRuntime(tmp_path, request.param)
    yield started
    started.end()


def test_no_message_ends_or_stalls_the_shim_or_stays_in_its_memory(
    pod_runtime: PodRuntime, message_seeds: Sequence[int]
) -> None:
    before: tuple[int, int] = (0, 0)
    for number, seed in enumerate(message_seeds):
        pod_runtime.fed(random.Random(seed), BATCH)
        pod_runtime.cleaned()
        if number < _SETTLED:
            before = pod_runtime.memory(), pod_runtime.descriptors()
    assert pod_runtime.memory() <= 1.2 * before[0]
    assert pod_runtime.descriptors() <= before[1] + _MADE_AHEAD


def test_no_message_of_a_first_process_is_more_than_junk(message_seeds: Sequence[int]) -> None:
    own = len(os.listdir("/proc/self/fd"))
    for seed in message_seeds:
        rng = random.Random(seed)
        for _ in range(BATCH):
            told = ChildReport(rng.random() < 0.5, "why", rng.randrange(256), 9, (1, 2))
            data = json.dumps(mutated(p.to_raw(told), rng)).encode()
            data = mutated_bytes(data, rng) if rng.random() < 0.3 else data
            channel = ChildChannel()
            end = socket.socket(fileno=os.dup(channel.theirs))
            with end, Descriptors(Path("/"), rng) as descriptors:
                try:
                    socket.send_fds(end, [data], descriptors)
                except OSError as error:  # no process can send a message as long as that
                    if error.errno != errno.EMSGSIZE:
                        raise
                    end.send(b"junk")
            try:
                message = channel.receive()
            except p.ProtocolError:
                pass
            else:
                assert message is not None
                assert 0 <= (message.report.code or 0) <= 255
                for fd in message.descriptors:
                    os.close(fd)
            channel.close()
    assert len(os.listdir("/proc/self/fd")) == own
