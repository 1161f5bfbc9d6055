"""Services of protocol UDP, by real datagrams from pod to pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.egress.scenes import says
from tests.embedded.node_cluster import PATIENCE, Cluster, cluster
from trainyard.embedded.cluster_objects import Deletion
from trainyard.embedded.node.pod_runtime_process import Isolation

ECHO = """
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(("", 5353))
print("bound", flush=True)
while True:
    data, client = one.recvfrom(65535)
    one.sendto(sys.argv[1].encode() + data, client)
"""
CLIENT = f"""
import errno, socket, time
def begin(port=53):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.settimeout(2)
    one.connect(("dns", port))
    return one
def ask(one, data=b""):
    give_up = time.monotonic() + {PATIENCE}
    while time.monotonic() < give_up:
        try:
            one.send(data)
            return one.recv(65535)
        except TimeoutError:  # a datagram may be lost
            pass
        except OSError as error:
            return errno.errorcode[error.errno]
def until(wanted, begin=begin):
    give_up = time.monotonic() + {PATIENCE}
    while (got := ask(begin())) != wanted:
        assert time.monotonic() < give_up, got
        time.sleep(0.02)
"""


def python(script: str) -> list[str]:
    return ["python3", "-c", script]


async def echo(node: Cluster, name: str) -> None:
    labels = {"metadata": {"labels": {"app": "dns"}}}
    await node.create(name, [*python(ECHO), name], **labels)
    await node.printed(name)


@pytest.mark.parametrize("isolation", ["auto", "rootless"])
async def test_datagrams_reach_the_pods_of_a_service(tmp_path: Path, isolation: Isolation) -> None:
    async with cluster(tmp_path / "s", isolation=isolation, is_network_open=False) as node:
        ports = [
            {"name": "udp", "port": 53, "targetPort": 5353, "protocol": "UDP"},
            {"name": "tcp", "port": 53, "targetPort": 5353},
            {"name": "closed", "port": 54, "protocol": "UDP"},
        ]
        spec = {"selector": {"app": "dns"}, "ports": ports}
        await node.registry.create("services", {"metadata": {"name": "dns"}, "spec": spec})
        script = """
until("ECONNREFUSED")
print("nobody", flush=True)
until(b"one")
first = begin()
assert ask(first) == b"one"
big = bytes(60000)
assert ask(begin(), big) == b"one" + big
assert ask(begin(54)) == "ECONNREFUSED"
print("one", flush=True)
until(b"two")
assert {ask(first) for _ in range(10)} == {b"one"}, "the same pod for who goes on"
assert {ask(begin()) for _ in range(10)} == {b"one", b"two"}
print("two", flush=True)
until(b"two", lambda: first)
assert {ask(begin()) for _ in range(10)} == {b"two"}
print("moved", flush=True)
"""
        await node.create("client", python(CLIENT + script), container={"workingDir": "/"})

        await says(node, "client", "nobody")
        await echo(node, "one")
        await says(node, "client", "one")
        await echo(node, "two")
        await says(node, "client", "two")
        await node.registry.delete("pods", "default", "one", Deletion(grace_seconds=0))
        done = await node.phase("client", "Succeeded", "Failed")
        assert done["status"]["phase"] == "Succeeded", await node.log("client")
        assert (await node.log("client")).split() == ["nobody", "one", "two", "moved"]
