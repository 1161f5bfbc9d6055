"""What pods find Services and each other by: names with all their addresses, and variables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.node_cluster import NODE, Cluster, cluster
from trainyard.embedded.node.pod_runtime_process import Isolation

LOOK_UP = """
import json, socket, sys
found = {}
for name in sys.argv[1:]:
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        found[name] = sorted({answer[4][0] for answer in answers})
    except OSError:
        found[name] = []
print(json.dumps(found))
"""


async def service(node: Cluster, name: str, **spec: Any) -> str:
    made = await node.registry.create(
        "services", {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    )
    return str(made["spec"].get("clusterIP", ""))


TELLS_ITS_CALLERS = {
    "TCP": (
        "import socket\n"
        "s=socket.create_server(('',8080))\n"
        "while True:\n"
        "    c,(caller,_)=s.accept(); c.sendall(caller.encode()); c.close()\n"
    ),
    "UDP": (
        "import socket\n"
        "s=socket.socket(type=socket.SOCK_DGRAM); s.bind(('',8080))\n"
        "while True:\n"
        "    _,caller=s.recvfrom(9); s.sendto(caller[0].encode(),caller)\n"
    ),
}
ASKS = {
    "TCP": (
        "import socket\n"
        "c=socket.create_connection(('front.default.svc.cluster.local',80))\n"
        "print(c.recv(99).decode())\n"
    ),
    "UDP": (
        "import socket\n"
        "c=socket.socket(type=socket.SOCK_DGRAM)\n"
        "c.connect(('front.default.svc.cluster.local',80)); c.settimeout(0.2)\n"
        "while True:\n"
        "    try: c.send(b'x'); print(c.recv(99).decode()); break\n"
        "    except OSError: pass\n"
    ),
}


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
@pytest.mark.parametrize("isolation", ["auto", "rootless"])
async def test_who_is_called_by_way_of_a_service_sees_who_calls(
    tmp_path: Path, isolation: Isolation, protocol: str
) -> None:
    """As on a cluster: XGBoost's tracker, for one, tells its workers such addresses (367)."""
    serve, ask = TELLS_ITS_CALLERS[protocol], ASKS[protocol]
    async with cluster(tmp_path / "s", isolation=isolation) as node:
        ports = [{"port": 80, "targetPort": 8080, "protocol": protocol}]
        await service(node, "front", selector={"a": "b"}, ports=ports)
        await node.create("server", ["python3", "-c", serve], metadata={"labels": {"a": "b"}})
        own = (await node.phase("server", "Running"))["status"]["podIP"]
        assert await node.exec("server", f'python3 -c "{ask}"') == (0, f"{own}\n")
        for name in ("client-0", "client-1"):
            pod = await node.run(name, ["python3", "-c", ask])
            assert await node.log(name) == f"{pod['status']['podIP']}\n"


@pytest.mark.parametrize("isolation", ["auto", "rootless"])
async def test_names_of_services(tmp_path: Path, isolation: Isolation) -> None:
    async with cluster(tmp_path / "s", isolation=isolation) as node:
        ports = [{"port": 80}]
        address = await service(node, "web", selector={"app": "db"}, ports=ports)
        await service(node, "db", selector={"app": "db"}, clusterIP="None")
        await service(
            node, "alias", type="ExternalName", externalName="db.default.svc.cluster.local"
        )
        pods = []
        for name in ("db-0", "db-1"):
            spec = {"hostname": name, "subdomain": "db"}
            await node.create(name, ["sleep", "1000"], metadata={"labels": {"app": "db"}}, **spec)
        for name in ("db-0", "db-1"):
            found = await node.until(
                name,
                lambda pod: any(c.get("ready") for c in pod["status"].get("containerStatuses", ())),
            )
            pods.append(found["status"]["podIP"])
        names = [
            "web",
            "db",
            "db.default.svc.cluster.local",
            "alias",
            "db-1.db",
            "nobody",
            "elsewhere",
        ]
        aliases = [{"ip": "10.1.2.3", "hostnames": ["elsewhere", "else.where"]}]
        script = ["python3", "-c", LOOK_UP, *names]
        done = await node.run("looker", script, hostAliases=aliases)
        assert done["status"]["phase"] == "Succeeded"
        found = json.loads(await node.log("looker"))
        assert found["web"] == [address]
        assert found["db"] == found["db.default.svc.cluster.local"] == sorted(pods)
        assert found["alias"] == sorted(pods)
        assert found["db-1.db"] == [pods[1]]
        assert found["elsewhere"] == ["10.1.2.3"]
        assert found["nobody"] == []


async def test_variables_of_services_and_of_the_node(tmp_path: Path) -> None:
    async with cluster(tmp_path / "s") as node:
        amounts = {"cpu": "3", "memory": "7Gi"}
        await node.registry.create(
            "nodes", {"metadata": {"name": NODE}, "status": {"allocatable": amounts}}
        )
        address = await service(node, "my-web", ports=[{"name": "http", "port": 80}])
        limit = {"resourceFieldRef": {"resource": "limits.cpu"}}
        request = {"resourceFieldRef": {"resource": "requests.cpu"}}
        env = [
            {"name": "URL", "value": "http://$(MY_WEB_SERVICE_HOST):$(MY_WEB_SERVICE_PORT_HTTP)"},
            {"name": "MY_WEB_PORT", "value": "mine"},
            {"name": "OMP_NUM_THREADS", "valueFrom": limit},
            {"name": "REQUESTED", "valueFrom": request},
        ]
        script = "echo $URL $MY_WEB_PORT $MY_WEB_PORT_80_TCP_ADDR $OMP_NUM_THREADS $REQUESTED"
        text = await node.shell("one", script, container={"env": env})
        assert text.split() == [f"http://{address}:80", "mine", address, "3", "0"]
        text = await node.shell(
            "two",
            f"echo {script.partition(' ')[2]}",
            enableServiceLinks=False,
            container={"env": env},
        )
        expected = "http://$(MY_WEB_SERVICE_HOST):$(MY_WEB_SERVICE_PORT_HTTP) mine 3 0"
        assert text.split() == expected.split()
