"""Names of the cluster as pods' resolver knows them, for clients that read no /etc/hosts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.egress import world
from tests.egress.scenes import Scene, does, outside, played, python, says, scene
from tests.embedded.node_cluster import PATIENCE, Cluster, eventually

SCENES: dict[str, Scene] = {}
naming = partial(scene, among=SCENES)

# What a name server says, each record in words; "" where its code is no name, "-" where no record.
CLIENT = f"""
SERVER_OF_NAMES, PATIENCE = ("10.244.0.1", 53), {PATIENCE}
BELOW = "default.svc.cluster.local"
A, CNAME, PTR, AAAA, SRV = 1, 5, 12, 28, 33
def encoded(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\\0"
def question(name, kind=A):
    return struct.pack(">HHHHHH", 77, 256, 1, 0, 0, 0) + encoded(name) + struct.pack(">HH", kind, 1)
def name_at(message, place):
    labels, end = [], 0
    while message[place]:
        if message[place] >= 192:
            end = end or place + 2
            place = int.from_bytes(message[place:place + 2], "big") & 0x3FFF
        else:
            labels.append(message[place + 1:place + 1 + message[place]].decode())
            place += 1 + message[place]
    return ".".join(labels), end or place + 1
def shown(message):
    _, flags, _, count, _, _ = struct.unpack_from(">HHHHHH", message)
    if flags & 15:
        return "" if flags & 15 == 3 else f"code {{flags & 15}}"
    place, found = name_at(message, 12)[1] + 4, []
    for _ in range(count):
        place = name_at(message, place)[1]
        kind, _, _, length = struct.unpack_from(">HHIH", message, place)
        place += 10
        if kind == A:
            found.append(socket.inet_ntoa(message[place:place + 4]))
        elif kind == SRV:
            numbers = struct.unpack_from(">HHH", message, place)
            found.append(" ".join(map(str, numbers)) + " " + name_at(message, place + 6)[0])
        else:
            found.append(name_at(message, place)[0])
        place += length
    return ", ".join(found) or "-"
def short(name, kind=A):
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.settimeout(2)
            one.connect(SERVER_OF_NAMES)
            try:
                one.send(question(name, kind))
                return shown(one.recv(4096))
            except OSError:  # the relay was killed, or the datagram lost
                pass
def exactly(one, size):
    data = b""
    while len(data) < size:
        more = one.recv(size - len(data))
        assert more, "the end"
        data += more
    return data
def long(*questions):
    with socket.create_connection(SERVER_OF_NAMES) as one:
        asked = [question(*each) for each in questions]
        one.sendall(b"".join(struct.pack(">H", len(each)) + each for each in asked))
        one.shutdown(socket.SHUT_WR)
        found = {{}}
        for _ in asked:
            answer = exactly(one, int.from_bytes(exactly(one, 2), "big"))
            found[name_at(answer, 12)[0]] = shown(answer)
        assert one.recv(1) == b""
        return [found[each[0]] for each in questions]
def until(holds, what):
    give_up = time.monotonic() + PATIENCE
    while not holds(got := what()):
        assert time.monotonic() < give_up, got
        time.sleep(0.01)
    return got
"""


async def service(node: Cluster, name: str, **spec: Any) -> str:
    made = await node.registry.create(
        "services", {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    )
    return str(made["spec"].get("clusterIP", ""))


async def changed(node: Cluster, name: str, **spec: Any) -> None:
    await node.registry.update("services", "default", name, lambda found: {**found, "spec": spec})


@naming
async def names_of_the_cluster_over_both_ways(node: Cluster, _: Path) -> None:
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    web = await service(node, "web", selector={"app": "db"}, ports=ports)
    await service(node, "db", selector={"app": "db"}, clusterIP="None", ports=ports)
    own = {"hostname": "db-0", "subdomain": "db", "metadata": {"labels": {"app": "db"}}}
    await node.create("db-0", ["sleep", "1000"], **own)
    pod = await node.until(
        "db-0", lambda pod: any(c.get("ready") for c in pod["status"].get("containerStatuses", ()))
    )
    address = pod["status"]["podIP"]
    text = await does(
        node,
        "asker",
        CLIENT
        + """
until(bool, lambda: short(f"db-0.db.{BELOW}"))
reverse = ".".join(reversed(socket.gethostbyname("web").split("."))) + ".in-addr.arpa"
asked = [(f"web.{BELOW}",), (f"_http._tcp.web.{BELOW}", SRV), (f"db.{BELOW}",),
         (f"db-0.db.{BELOW}",), (f"_http._tcp.db.{BELOW}", SRV), (reverse, PTR),
         (f"nobody.{BELOW}",), (DATA,)]
for found in ([short(*each) for each in asked], long(*asked)):
    print(found)
print([short(f"web.{BELOW}", AAAA)], long())
""".replace("DATA", repr(world.NAME)),
    )
    below = "default.svc.cluster.local"
    known = [
        web,
        f"0 100 80 web.{below}",
        address,
        address,
        f"0 100 8080 db-0.db.{below}",
        f"web.{below}",
        "",
        world.SERVER,
    ]
    assert text.splitlines() == [str(known), str(known), "['-'] []"]


@naming
async def an_alias_outside_is_followed_while_a_program_runs(node: Cluster, folder: Path) -> None:
    """Through what becomes of it, and of the relay, and by the C library."""
    await service(node, "alias", type="ExternalName", externalName=f"{world.NAME}.")
    script = """
def looked_up():
    try:
        return socket.getaddrinfo("alias", 80, type=socket.SOCK_STREAM)[0][4][0]
    except OSError:
        return "none"
name = f"alias.{BELOW}"
print(until("none".__ne__, looked_up), short(name), *long((name,)), flush=True)
print(until(lambda got: "absent" in got, lambda: short(name, CNAME)), flush=True)
print(looked_up(), [short(name)], flush=True)
address = until(lambda got: got.startswith("10."), lambda: short(name))
print(address == looked_up(), [short(name, CNAME)], flush=True)
print("gone", [until(lambda got: not got, lambda: short(name))], looked_up(), flush=True)
"""
    await node.create("follower", python(CLIENT + script), container={"workingDir": "/"})
    await says(node, "follower", f"{world.SERVER} {world.NAME}, {world.SERVER}")
    (relay,) = outside("egress-relay")
    os.kill(relay, signal.SIGKILL)
    await eventually(lambda: outside("egress-relay") not in ([], [relay]))
    await changed(node, "alias", type="ExternalName", externalName="absent.example.org")
    await says(node, "follower", "['']")
    await changed(node, "alias", type="ClusterIP", ports=[{"port": 80}])
    await says(node, "follower", "True")
    await node.registry.delete("services", "default", "alias")
    await node.phase("follower", "Succeeded", "Failed")
    assert (await node.log("follower")).splitlines() == [
        " ".join([world.SERVER, *[f"{world.NAME}, {world.SERVER}"] * 2]),
        "absent.example.org",
        "none ['']",
        "True ['-']",
        "gone [''] none",
    ]
    asked = (folder / "asked").read_bytes()
    assert b"cluster" not in asked, "nobody outside is asked for them"


@naming
async def names_are_looked_up_as_the_pod_says(node: Cluster, _: Path) -> None:
    """With the machine's domains, or only by servers and in domains of its own."""
    script = """
print([line for line in open("/etc/resolv.conf").read().splitlines()])
print(socket.getaddrinfo("data", 80, type=socket.SOCK_STREAM)[0][4][0])
"""
    resolver, domain, dots = "nameserver 10.244.0.1", "search example.org", "options ndots:2"
    own = {
        "nameservers": [world.SERVER],
        "searches": ["example.org"],
        "options": [{"name": "ndots", "value": "2"}],
    }
    for name, expected, spec in (
        ("machines", [resolver, domain], {"dnsPolicy": "Default"}),
        (
            "own",
            [f"nameserver {world.SERVER}", domain, dots],
            {"dnsPolicy": "None", "dnsConfig": own},
        ),
    ):
        text = await does(node, name, script, **spec)
        assert text.splitlines() == [str(expected), world.SERVER]
    assert not [e for e in node.registry.list("events") if e["reason"] == "NotHonoured"]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(played(SCENES, Path(sys.argv[1])))))
