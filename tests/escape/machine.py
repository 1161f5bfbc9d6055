"""The machine around the pods that try to escape: what is to be kept from them, and another pod."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from tests.embedded.node_cluster import Cluster, cluster

PROCESSES = 100
SECRET, TOKEN = "only-for-the-other-pod", "only-for-who-started-the-cluster"
SHARED_MEMORY = 0x7E5CA9E
VICTIM_PORT = 7070
_SETTINGS = ["core_pattern", "modprobe", "hostname", "domainname", "panic", "sysrq", "printk"]
_libc = ctypes.CDLL(None, use_errno=True)

# Has something of each kind that another pod might find.
VICTIM = f"""
import ctypes, os, socket, time
libc = ctypes.CDLL(None, use_errno=True)
shared, queue = (29, 240) if os.uname().machine == "x86_64" else (194, 180)
call = lambda number, *rest: libc.syscall(ctypes.c_long(number), *rest)
assert call(shared, {SHARED_MEMORY}, ctypes.c_long(4096), 0o1666) >= 0
assert call(queue, b"escape-queue", os.O_CREAT | os.O_RDWR, 0o666, None) >= 0
open("/dev/shm/escape-file", "w").close()
abstract = socket.socket(socket.AF_UNIX)
abstract.bind("\\0escape-victim")
abstract.listen()
server = socket.create_server(("0.0.0.0", {VICTIM_PORT}))
print("ready", flush=True)
time.sleep(600)
"""


class Machine:
    """``folder`` is on the machine's own file system; ``given`` sockets are somebody else's."""

    def __init__(self, folder: Path, given: list[str]) -> None:
        self.folder = folder
        self.work, self.claim, self.canary = folder / "work", folder / "claim", folder / "canary"
        self.outside = folder / "outside"
        # The worst place for it: in what a pod may write.
        self.state = self.work / "deep" / "state"
        for path in (self.work, self.work / "deep", self.claim, self.outside):
            path.mkdir()
        self.canary.write_text("untouched")
        (self.outside / "secret").write_text("of the machine")
        (self.claim / "file").write_text("untouched")
        shutil.copytree(Path(__file__).parent / "inside", self.work / "inside")
        self._listeners: list[socket.socket] = []
        self.key = f"escape-{os.getpid()}"
        self.situation: dict[str, Any] = {
            **self._listen(given),
            "canary": str(self.canary),
            "private": str(folder.parent / "private"),
            "state": str(self.state),
            "process": os.getpid(),
            "secret": SECRET[::-1],
            "token": TOKEN[::-1],
            "key": self.key,
            "shared": SHARED_MEMORY,
            "device": self.canary.stat().st_dev,
            "processes": PROCESSES + 300,
            "configuration": "/configuration",
            "read-only": "/claim",
            "gateway": "10.244.0.1",
            "victim-port": VICTIM_PORT,
        }
        os.environ["ESCAPE_TOKEN"] = TOKEN
        for keyring in (-3, -4):  # of the session and of the user
            _libc.syscall(248, b"user", self.key.encode(), b"secret", 6, keyring)
        self._before = self._looked_at()

    def _listen(self, given: list[str]) -> dict[str, Any]:
        port = socket.create_server(("0.0.0.0", 0))
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind(("0.0.0.0", 0))
        self._datagrams = datagrams
        self._listeners.append(port)
        abstract = f"trainyard-escape-{os.getpid()}"
        paths = [str(self.folder / "machine.sock"), f"/tmp/{abstract}.sock"]
        for address in (f"\0{abstract}", *paths, str(self.work / "machine.sock")):
            one = socket.socket(socket.AF_UNIX)
            one.bind(address)
            one.listen()
            self._listeners.append(one)
        number = port.getsockname()[1]
        return {
            "port": number,
            "datagram-port": datagrams.getsockname()[1],
            "abstract": abstract,
            "socket": paths[0],
            "sockets": [*paths, *given],
            "address": own_address(),
        }

    def _looked_at(self) -> dict[str, Any]:
        """All that must not change."""
        found: dict[str, Any] = {}
        for where, folders, names in os.walk(self.folder):
            if where == str(self.state.parent):
                folders.remove(self.state.name) if self.state.exists() else None
            for name in (*folders, *names):
                path = Path(where, name)
                found[str(path)] = path.read_bytes() if path.is_file() else path.lstat().st_mode
        for name in _SETTINGS:
            with contextlib.suppress(OSError):
                found[name] = Path(f"/proc/sys/kernel/{name}").read_text()
        for name in ("hosts", "resolv.conf", "hostname", "passwd"):
            with contextlib.suppress(FileNotFoundError):
                found[name] = Path(f"/etc/{name}").read_bytes()
        found["/"] = sorted(os.listdir("/"))
        private = self.folder.parent / "private"
        found["private"] = private.stat().st_mtime_ns
        return found

    def judge(self) -> None:
        """Nothing has changed, and nobody has connected."""
        now = self._looked_at()
        changed = [k for k in now.keys() | self._before.keys() if now.get(k) != self._before.get(k)]
        assert not changed, changed
        for listener in self._listeners[:-1]:  # the last one is in the working folder
            listener.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                raise AssertionError(f"connected to {listener.accept()[0].getsockname()!r}")
        self._datagrams.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            raise AssertionError(f"sent to the machine: {self._datagrams.recv(100)!r}")

    def close(self) -> None:
        for listener in (*self._listeners, self._datagrams):
            listener.close()
        Path(self.situation["sockets"][1]).unlink(missing_ok=True)

    @contextlib.asynccontextmanager
    async def cluster(self, **settings: Any) -> AsyncIterator[Cluster]:
        """Beside the victim; it goes on as if nothing had been."""
        claims = {"claim": str(self.claim), **settings.pop("volumes", {})}
        own = {"working_dir": str(self.work), "pids_limit": PROCESSES, "volumes": claims}
        async with cluster(self.state, **own, **settings) as node:
            await start_victim(node)
            yield node
            await judge_victim(node)
        self.judge()


async def start_victim(node: Cluster) -> None:
    other = {"env": [{"name": "SECRET", "value": SECRET}], "workingDir": "/"}
    await node.create("victim", [sys.executable, "-c", VICTIM], container=other)
    await node.phase("victim", "Running")
    await node.printed("victim")
    assert await node.log("victim") == "ready\n"


async def judge_victim(node: Cluster) -> None:
    pod = node.pod("victim")["status"]
    assert (pod["phase"], pod["containerStatuses"][0]["restartCount"]) == ("Running", 0)
    script = "echo $SECRET; ls /dev/shm; hostname"
    expected = f"{SECRET}\nescape-file\nvictim\n"
    assert await node.exec("victim", script) == (0, expected)
    assert "elsewhere" not in (await node.exec("victim", "cat /etc/hosts /etc/resolv.conf"))[1]


def own_address() -> str:
    """Of the machine on some network; its loopback where it is on none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


@contextlib.contextmanager
def sockets_of_the_machine(name: str) -> Iterator[list[str]]:
    """Where services of the machine have theirs, open to everybody. Needs root."""
    opened: list[tuple[socket.socket, str]] = []
    try:
        for folder in ("/run", "/dev/shm", "/var/tmp"):
            path = f"{folder}/{name}.sock"
            one = socket.socket(socket.AF_UNIX)
            one.bind(path)
            one.listen()
            os.chmod(path, 0o777)
            opened.append((one, path))
        yield [path for _, path in opened]
        for one, path in opened:
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.accept()
                raise AssertionError(f"somebody has connected to {path}")
    finally:
        for one, path in opened:
            one.close()
            os.unlink(path)


def situation_of(machine: Machine, node: Cluster, only: list[str]) -> str:
    victim = node.pod("victim")["status"]["podIP"]
    return json.dumps({**machine.situation, "victim": victim, "only": only})
