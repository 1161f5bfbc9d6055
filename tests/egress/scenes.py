"""What pods do with the network outside, by name: all on one cluster, as root or as a user.

``python -m tests.egress.scenes FOLDER`` prints a JSON object of why each failed, "" if it did not.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import sys
import textwrap
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.egress import world
from tests.embedded.node_cluster import PATIENCE, Cluster, cluster, eventually
from trainyard.embedded.cluster_objects import Deletion

Scene = Callable[[Cluster, Path], Awaitable[None]]
SCENES: dict[str, Scene] = {}

HEAD = f"""
import errno, hashlib, os, socket, struct, sys, time, urllib.request
SERVER, MACHINE, NOWHERE = {world.SERVER!r}, {world.MACHINE!r}, {world.NOWHERE!r}
HOST = "host.trainyard.internal"
def connect(address, port, seconds=60):
    # The kernel waits, not poll(): Linux wakes who polls for a refusal by ICMP a moment before
    # SO_ERROR tells of it, so that one in 20,000 seems to be connected.
    one = socket.socket()
    wait = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
    try:
        one.connect((address, port))
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bytes(len(wait)))
    one.settimeout(seconds)
    return one
def told(got):
    return got if isinstance(got, str) else "socket"
def datagram(address, port, data=b"x", seconds=60):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.settimeout(seconds)
    try:
        one.connect((address, port))
        one.send(data)
        return one.recv(65535)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
"""


def scene(play: Scene, among: dict[str, Scene] = SCENES) -> Scene:
    among[play.__name__] = play  # type: ignore[attr-defined]
    return play


def python(script: str) -> list[str]:
    return [sys.executable, "-c", HEAD + textwrap.dedent(script)]


async def does(node: Cluster, name: str, script: str, **spec: Any) -> str:
    """What the script prints in a pod of its own, in which it must succeed."""
    pod = await node.run(name, python(script), container={"workingDir": "/"}, **spec)
    text = await node.log(name)
    assert pod["status"]["phase"] == "Succeeded", (text, pod["status"])
    return text


async def says(node: Cluster, name: str, wanted: str) -> None:
    """Wait until the pod has printed it."""
    await node.printed(name)
    until = time.monotonic() + PATIENCE
    while wanted not in (text := await node.log(name)):
        assert time.monotonic() < until, text
        assert node.pod(name)["status"]["phase"] == "Running", text
        await asyncio.sleep(0.02)


def outside(name: str) -> list[int]:
    """Processes of this cluster, by the name of the process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text() != f"{name}\n":
                continue
            pid, parents = int(folder.name), set()
            while pid > 1 and pid not in parents:
                parents.add(pid)
                pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if os.getpid() in parents:
                found.append(int(folder.name))
    return found


@scene
async def nothing_runs_outside_before_it_is_needed(node: Cluster, _: Path) -> None:
    await does(node, "idle", "print('idle')")
    assert outside("egress-starter")
    assert not outside("egress-relay")


@scene
async def a_pod_downloads_and_uploads_by_name(node: Cluster, _: Path) -> None:
    text = await does(
        node,
        "load",
        f"""
        with urllib.request.urlopen("http://{world.NAME}/file") as answer:
            got = answer.read()
        assert len(got) == {world.SIZE}, len(got)
        sent = urllib.request.Request("http://{world.NAME}/", data=got)
        with urllib.request.urlopen(sent) as answer:
            assert answer.read().decode() == hashlib.sha256(got).hexdigest()
        print(hashlib.sha256(got).hexdigest())
        """,
    )
    assert text.strip() == hashlib.sha256(world.data()).hexdigest()


@scene
async def what_is_refused_outside_is_refused_at_connect(node: Cluster, _: Path) -> None:
    text = await does(
        node,
        "refused",
        f"""
        print(connect(SERVER, {world.CLOSED_PORT}), connect(NOWHERE, 80))
        six = socket.socket(socket.AF_INET6)
        try:
            six.connect(("2001:db8::1", 80))
        except OSError as error:
            print(errno.errorcode[error.errno])
        print(datagram(SERVER, {world.CLOSED_PORT}), datagram(NOWHERE, 80))
        """,
    )
    refused, six, datagrams = text.splitlines()
    assert refused == "ECONNREFUSED ENETUNREACH"
    assert six in ("ENETUNREACH", "EADDRNOTAVAIL")
    assert datagrams == "ECONNREFUSED ENETUNREACH", datagrams


@scene
async def names_are_looked_up_where_the_machine_does(node: Cluster, folder: Path) -> None:
    text = await does(
        node,
        "names",
        f"""
        def look(name, family=0):
            try:
                return socket.getaddrinfo(name, 80, family, socket.SOCK_STREAM)[0][4][0]
            except socket.gaierror as error:
                return "none"
        print(look({world.NAME!r}), look("absent.example.org"), look("names"), look("ghost"))
        print(look("ghost.job"), look({world.NAME!r}, socket.AF_INET6), look(HOST))
        try:
            socket.gethostbyaddr("10.244.200.200")
        except OSError:
            print("nobody")
        label = lambda text: bytes([len(text)]) + text.encode()
        name = b"".join(map(label, {world.NAME!r}.split("."))) + b"\\0"
        asked = struct.pack(">HHHHHH", 77, 0x100, 1, 0, 0, 0) + name + struct.pack(">HH", 1, 1)
        with socket.create_connection(("10.244.0.1", 53)) as long:
            long.sendall(struct.pack(">H", len(asked)) + asked)
            answer = long.recv(4096)
        print(socket.inet_aton(SERVER) in answer)
        """,
    )
    own = node.pod("names")["status"]["podIP"]
    assert text.splitlines() == [
        f"{world.SERVER} none {own} none",
        "none none 169.254.74.1",
        "nobody",
        "True",
    ]
    asked = (folder / "asked").read_bytes()
    assert b"absent" in asked
    assert not any(word in asked for word in (b"cluster", b"ghost\n", b"in-addr", b"trainyard"))


@scene
async def datagrams_come_back_however_long(node: Cluster, _: Path) -> None:
    text = await does(
        node,
        "echo",
        f"""
        for size in (1, 1400, 9000, 60000):
            sent = os.urandom(size)
            for _ in range(50):  # one may be lost
                if (got := datagram(SERVER, {world.ECHO_PORT}, sent)) == sent:
                    break
            assert got == sent, (size, got)
        print("all")
        """,
    )
    assert text == "all\n"


@scene
async def of_the_machine_only_what_is_allowed_is_reached(node: Cluster, _: Path) -> None:
    """And only by its name; `world.main` looks whether anything else was."""
    text = await does(
        node,
        "machine",
        f"""
        with connect(HOST, {world.ALLOWED_PORT}) as one:
            print(one.recv(100).decode().strip())
        print(connect(HOST, {world.DENIED_PORT}), connect(HOST, {world.EVERYWHERE_PORT}))
        for address in ("127.0.0.1", "127.0.0.2", "0.0.0.0", "10.244.0.1"):
            print(connect(address, {world.ALLOWED_PORT}), connect(address, {world.DENIED_PORT}))
        for address in (MACHINE, "203.0.113.255", "169.254.1.1", {world.METADATA!r},
                        "168.63.129.16", "100.100.100.200"):
            for port in ({world.EVERYWHERE_PORT}, 80):
                got = connect(address, port), datagram(address, port)
                assert got == ("EHOSTUNREACH",) * 2, (address, port, got)
        for address in ("224.0.0.1", "239.1.2.3", "255.255.255.255"):  # never answered
            datagram(address, {world.EVERYWHERE_PORT}, seconds=0.1)
            assert isinstance(connect(address, {world.EVERYWHERE_PORT}), str)
        for way in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            try:
                socket.socket(socket.AF_UNIX, way).connect("\\0egress-machine")
                print("abstract")
            except OSError:
                pass
        """,
    )
    assert text.splitlines() == [
        "of the machine",
        "EHOSTUNREACH EHOSTUNREACH",
        *["ECONNREFUSED ECONNREFUSED"] * 4,
    ]


STREAM = """
one = connect(SERVER, {port})
one.sendall({name!r}.ljust(32).encode())
print("connected", flush=True)
try:
    while one.recv(1 << 16):
        pass
    print("end", flush=True)
except OSError as error:
    print(errno.errorcode[error.errno], flush=True)
"""


@scene
async def a_relay_that_is_killed_breaks_its_connections_and_no_more(
    node: Cluster, folder: Path
) -> None:
    script = STREAM.format(port=world.SINK_PORT, name="killed")
    await node.create("killed", python(script), container={"workingDir": "/"})
    await says(node, "killed", "connected")
    (relay,) = outside("egress-relay")
    os.kill(relay, signal.SIGKILL)
    pod = await node.phase("killed", "Succeeded", "Failed")
    assert await node.log("killed") == "connected\nECONNRESET\n", "not the end of what was sent"
    assert pod["status"]["phase"] == "Succeeded"
    await eventually(lambda: b"killed reset" in (folder / "ended").read_bytes())
    text = await does(node, "after", f"print(told(connect(SERVER, {world.SINK_PORT})))")
    assert text == "socket\n", text
    assert outside("egress-relay") not in ([], [relay])


@scene
async def connections_of_a_pod_end_with_it(node: Cluster, folder: Path) -> None:
    script = STREAM.format(port=world.SINK_PORT, name="deleted")
    await node.create("deleted", python(script), container={"workingDir": "/"})
    await says(node, "deleted", "connected")
    await node.registry.delete("pods", "default", "deleted", Deletion(grace_seconds=0))
    await node.gone("deleted")
    await eventually(lambda: b"deleted " in (folder / "ended").read_bytes())


@scene
async def many_connections_at_once_all_come_about(node: Cluster, _: Path) -> None:
    text = await does(
        node,
        "many",
        f"""
        import selectors
        ready, made = selectors.DefaultSelector(), []
        for _ in range(1000):
            one = socket.socket()
            one.setblocking(False)
            assert one.connect_ex((SERVER, {world.SINK_PORT})) == errno.EINPROGRESS
            ready.register(one, selectors.EVENT_WRITE)
            made.append(one)
        left = len(made)
        while left:
            for key, _ in ready.select(60):
                assert not key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                ready.unregister(key.fileobj)
                left -= 1
        print("all")
        """,
    )
    assert text == "all\n"


async def played(scenes: dict[str, Scene], folder: Path) -> dict[str, str]:
    """All of them on one cluster: why each failed, and what the shim has logged."""
    results = {}
    async with cluster(folder / "state", allowed_ports=(world.ALLOWED_PORT,)) as node:
        expected = "root" if os.geteuid() == 0 else "rootless"
        assert node.agent.isolation == expected, node.agent.isolation_reason
        for name, play in scenes.items():
            try:
                await play(node, folder)
                results[name] = ""
            except Exception:
                results[name] = traceback.format_exc()
    results["shim.log"] = (folder / "state" / "shim.log").read_text()
    return results


if __name__ == "__main__":
    print(json.dumps(asyncio.run(played(SCENES, Path(sys.argv[1])))))
