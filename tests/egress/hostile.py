"""What a hostile pod does to the relay: it stays, holds a bounded amount, and serves the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

from tests.egress import world
from tests.egress.scenes import Scene, does, outside, played, python, says, scene
from tests.embedded.node_cluster import Cluster, eventually
from trainyard.embedded.cluster_objects import Deletion

SCENES: dict[str, Scene] = {}
hostile = partial(scene, among=SCENES)
_MOST_BYTES = 150 << 20
_MOST_CONNECTIONS, _MOST_ASSOCIATIONS = 2048, 512
_MOST_DESCRIPTORS = 6 * _MOST_CONNECTIONS + _MOST_ASSOCIATIONS + 300

RIGHTS = f"""
import random, resource
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
dice = random.Random(7)
try:
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
except PermissionError:
    raw = None
own = socket.gethostbyname(socket.gethostname())
def syn(port, flags=2, options=b"", head=b"", offset=None, fragment=0, source=own):
    words = 5 + len(options) // 4 if offset is None else offset
    ports = port, {world.SINK_PORT}
    segment = struct.pack(">HHIIBBHHH", *ports, port, 0, words << 4 & 255, flags, 9999, 0, 0)
    ends = socket.inet_aton(source), socket.inet_aton(SERVER)
    first = 0x40 | 5 + len(head) // 4
    ip = struct.pack(">BBHHHBBH4s4s", first, 0, 0, 1, fragment, 64, 6, 0, *ends) + head
    raw.sendto(ip + segment + options, (SERVER, 0))
"""


async def others_are_served(node: Cluster, name: str) -> None:
    """Another pod looks a name up, and connects to it; the relay is the one that was there."""
    (before,) = outside("egress-relay")
    script = f"print(told(connect({world.NAME!r}, {world.SINK_PORT})))"
    assert (text := await does(node, name, script)) == "socket\n", text
    assert outside("egress-relay") == [before]
    status = Path(f"/proc/{before}/status").read_text()
    (resident,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    assert int(resident) << 10 <= _MOST_BYTES, resident
    with contextlib.suppress(PermissionError):  # but for root
        assert len(os.listdir(f"/proc/{before}/fd")) <= _MOST_DESCRIPTORS


async def while_it_lives(node: Cluster, name: str, script: str, wanted: str) -> None:
    """Others are served while a pod does this, and after it."""
    await node.create(name, python(RIGHTS + script), container={"workingDir": "/"})
    await says(node, name, wanted)
    await others_are_served(node, f"beside-{name}")
    await node.registry.delete("pods", "default", name, Deletion(grace_seconds=0))
    await node.gone(name)
    await others_are_served(node, f"after-{name}")


@hostile
async def a_relay_is_there(node: Cluster, _: Path) -> None:
    assert await does(node, "first", f"print(told(connect(SERVER, {world.SINK_PORT})))")
    assert len(outside("egress-relay")) == 1


@hostile
async def connections_that_are_never_completed(node: Cluster, _: Path) -> None:
    script = """
for port in range(2000, 8000):
    raw and syn(port)
print("sent", flush=True)
time.sleep(600)
"""
    await while_it_lives(node, "half", script, "sent")


@hostile
async def more_connections_than_a_pod_may_have(node: Cluster, _: Path) -> None:
    script = f"""
held, refused = [], 0
while refused < 100:
    one = connect(SERVER, {world.SINK_PORT})
    if isinstance(one, str):
        assert one == "ECONNREFUSED", one
        refused += 1
    else:
        held.append(one)
assert 100 < len(held) <= {_MOST_CONNECTIONS}, len(held)
print("held", flush=True)
time.sleep(600)
"""
    await while_it_lives(node, "greedy", script, "held")


@hostile
async def clients_that_send_slowly_and_never_read(node: Cluster, _: Path) -> None:
    script = f"""
held = []
for number in range(200):
    one = connect(SERVER, {world.HTTP_PORT})
    one.sendall(b"GET /file HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n" if number % 2 else b"G")
    held.append(one)
print("held", flush=True)
while True:
    for one in held[::2]:
        one.sendall(b"E")
        time.sleep(0.05)
"""
    await while_it_lives(node, "slow", script, "held")


@hostile
async def datagrams_to_more_ports_than_a_pod_may_use(node: Cluster, _: Path) -> None:
    script = """
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in range(10000, 16000):
    try:
        one.sendto(b"x", (SERVER, port))
    except OSError:
        pass
print("sent", flush=True)
time.sleep(600)
"""
    await while_it_lives(node, "ports", script, "sent")


@hostile
async def what_makes_no_sense(node: Cluster, _: Path) -> None:
    script = """
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(3000):
    head = dice.choice([b"", struct.pack(">HHHHHH", 1, 0x100, 1, 0, 0, 0)])
    one.sendto(head + dice.randbytes(dice.randrange(80)), ("10.244.0.1", 53))
for _ in range(50):
    with socket.create_connection(("10.244.0.1", 53)) as long:
        long.sendall(dice.randbytes(40))
for port in range(30000, 32000) if raw else ():
    flags = dice.choice([2, 2, 3, 6, 0xC2, 0x22, 0xFF])
    options = dice.randbytes(4 * dice.randrange(10))
    head = dice.choice([b"", b"", b"\\x83\\x07\\x04" + socket.inet_aton("127.0.0.1") + b"\\0"])
    offset = dice.choice([None, None, 0, 4, 15])
    fragment = dice.choice([0, 0, 0x2000, 0x1FFF])
    source = dice.choice([own, "10.244.0.1", "127.0.0.1", "203.0.113.1", "10.96.0.1"])
    try:
        syn(port, flags, options, head, offset, fragment, source)
    except OSError:
        pass
print("sent", flush=True)
time.sleep(600)
"""
    await while_it_lives(node, "odd", script, "sent")


@hostile
async def whoever_starts_relays_is_killed(node: Cluster, folder: Path) -> None:
    """Without root nobody else can: pods are kept to themselves, and go on."""
    for pid in outside("egress-starter"):
        os.kill(pid, signal.SIGKILL)
    log = folder / "state" / "shim.log"
    await eventually(lambda: "pods are kept to themselves" in log.read_text())
    await eventually(lambda: not outside("egress-relay"))
    script = f"print(isinstance(connect(SERVER, {world.SINK_PORT}, seconds=1), str))"
    assert await does(node, "alone", script) == "True\n"


if __name__ == "__main__":
    print(json.dumps(asyncio.run(played(SCENES, Path(sys.argv[1])))))
