"""What probes say and do: patience, verdicts and the words for them, with real processes."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.embedded.node_cluster import Cluster, cluster, eventually
from trainyard.composition.kinds_extension import RESOURCES
from trainyard.embedded.node.pod_runtime_process import start_pod_runtime
from trainyard.embedded.registry import Registry
from trainyard.machine import certificate_authority


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Cluster]:
    (tmp_path / "work").mkdir()
    async with cluster(tmp_path / "state", working_dir=str(tmp_path / "work")) as running:
        yield running


async def test_a_startup_probe_is_as_patient_as_its_period_says(node: Cluster) -> None:
    """Three failures at one a second take two seconds at least, whatever is polled meanwhile."""
    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 3}
    begin = time.monotonic()
    await node.create("job-0", ["sleep", "100"], container={"startupProbe": probe})
    await node.phase("job-0", "Failed")
    assert time.monotonic() - begin >= 2


async def test_a_startup_probe_that_succeeds_late_lets_the_container_live(node: Cluster) -> None:
    probe = {"exec": {"command": ["test", "-e", "up"]}, "periodSeconds": 1, "failureThreshold": 5}
    script = "sleep 2; touch up; sleep 100"
    await node.create("job-0", ["sh", "-c", script], container={"startupProbe": probe})
    await node.until("job-0", lambda pod: bool(_status(pod).get("ready")))
    assert not node.events("Killing")


async def test_a_probe_that_fails_in_other_words_is_told_again(node: Cluster) -> None:
    probe = {"exec": {"command": ["sh", "-c", "cat why; false"]}, "periodSeconds": 1}
    probe |= {"failureThreshold": 1000}
    script = "echo first > why; until [ -e on ]; do sleep 0.1; done; echo second > why; sleep 100"
    await node.create("job-0", ["sh", "-c", script], container={"startupProbe": probe})

    def told(word: str) -> bool:
        return any(event.endswith(word) for event in node.events("Unhealthy"))

    await eventually(lambda: told("first"))
    (node.state_dir.parent / "work" / "on").touch()
    await eventually(lambda: told("second"))


async def test_what_a_probe_kills_is_told_with_the_probe(node: Cluster) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    await node.create("job-0", ["sleep", "100"], container={"livenessProbe": probe})
    await node.phase("job-0", "Failed")
    await eventually(lambda: bool(node.events("Killing")))
    assert node.events("Unhealthy") == ["Liveness probe failed: its command ended with 1"]
    assert node.events("Killing") == ["Container main failed liveness probe"]


async def test_a_probe_tells_whether_its_container_will_be_restarted(node: Cluster) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    await node.create(
        "job-0", ["sleep", "100"], container={"livenessProbe": probe}, restartPolicy="Always"
    )
    await eventually(lambda: bool(node.events("Killing")))
    assert node.events("Killing")[0] == "Container main failed liveness probe, will be restarted"


async def test_a_probe_may_have_a_grace_of_its_own(node: Cluster) -> None:
    """The pod's would outlast the test."""
    probe = {
        "exec": {"command": ["false"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
        "terminationGracePeriodSeconds": 1,
    }
    script = "trap '' TERM; while true; do sleep 1; done"
    await node.create(
        "job-0",
        ["sh", "-c", script],
        container={"livenessProbe": probe},
        terminationGracePeriodSeconds=10_000,
    )
    pod = await node.phase("job-0", "Failed")
    assert _status(pod)["state"]["terminated"]["exitCode"] == 137


async def test_a_container_that_never_becomes_ready_is_warned_about_once(node: Cluster) -> None:
    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1}
    await node.create("job-0", ["sleep", "3"], container={"readinessProbe": probe})
    pod = await node.phase("job-0", "Succeeded")
    address = pod["status"]["podIP"]
    expected = f"Readiness probe failed: cannot connect to {address}:8080: Connection refused"
    assert node.events("Unhealthy") == [expected]


async def test_each_spell_of_bad_health_is_told(node: Cluster) -> None:
    probe = {
        "exec": {"command": ["test", "-e", "up"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
    }
    await node.create("job-0", ["sleep", "100"], container={"readinessProbe": probe})
    await eventually(lambda: len(node.events("Unhealthy")) == 1)
    await node.exec("job-0", "touch up")
    await node.until("job-0", lambda pod: bool(_status(pod)["ready"]))
    await node.exec("job-0", "rm up")
    await eventually(lambda: len(node.events("Unhealthy")) == 2)
    await node.until("job-0", lambda pod: not _status(pod)["ready"])


_GRPC = """
import grpc, os, sys, threading
from concurrent.futures import ThreadPoolExecutor
say = lambda *_: b"\\x08\\x01" if os.path.exists("up") else b"\\x08\\x02"
check = {"Check": grpc.unary_unary_rpc_method_handler(say)}
server = grpc.server(ThreadPoolExecutor(1))
handler = grpc.method_handlers_generic_handler("grpc.health.v1.Health", check)
server.add_generic_rpc_handlers((handler,))
server.add_insecure_port("[::]:8080") or sys.exit("no port")
server.start()
threading.Event().wait()
"""


# It is not imported here: whoever has imported grpc forks no more.
@pytest.mark.skipif(find_spec("grpc") is None, reason="grpc is not installed")
async def test_a_grpc_probe_asks_for_the_health(node: Cluster) -> None:
    probe = {"grpc": {"port": 8080}, "periodSeconds": 1, "timeoutSeconds": 60}
    command = [sys.executable, "-c", _GRPC]
    await node.create("job-0", command, container={"readinessProbe": probe})
    told = 'Readiness probe failed: service unhealthy (responded with "NOT_SERVING")'
    await eventually(lambda: told in node.events("Unhealthy"))
    assert not _status(node.pod("job-0"))["ready"]
    await node.exec("job-0", "touch up")
    await node.until("job-0", lambda pod: bool(_status(pod)["ready"]))


async def test_a_port_that_accepts_connections_is_no_grpc_server(node: Cluster) -> None:
    script = (
        "import socket; s = socket.create_server(('', 8080))\nwhile True: s.accept()[0].close()"
    )
    probe = {"grpc": {"port": 8080}, "periodSeconds": 1, "timeoutSeconds": 60}
    await node.create("job-0", [sys.executable, "-c", script], container={"readinessProbe": probe})
    await eventually(lambda: any("not speak gRPC" in told for told in node.events("Unhealthy")))


_HTTPS = """
import http.server, os, ssl
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists("up") else 503)
        self.end_headers()
server = http.server.ThreadingHTTPServer(("", 8080), Handler)
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain("pair.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


async def test_an_https_probe_sees_the_answer_whatever_the_certificate(node: Cluster) -> None:
    pair = certificate_authority.create_authority("somebody", timedelta(days=1))
    (node.state_dir.parent / "work" / "pair.pem").write_bytes(pair.key + pair.certificate)
    get = {"port": 8080, "scheme": "HTTPS"}
    probe = {"httpGet": get, "periodSeconds": 1, "timeoutSeconds": 60}
    await node.create("job-0", [sys.executable, "-c", _HTTPS], container={"readinessProbe": probe})
    told = "Readiness probe failed: HTTP probe failed with statuscode: 503"
    await eventually(lambda: told in node.events("Unhealthy"))
    await node.exec("job-0", "touch up")
    await node.until("job-0", lambda pod: bool(_status(pod)["ready"]))


async def test_an_agent_that_takes_a_running_container_over_probes_it_and_starts_nothing_again(
    tmp_path: Path,
) -> None:
    state, work = tmp_path / "state", tmp_path / "work"
    work.mkdir()
    (work / "up").touch()
    registry = Registry(resources=RESOURCES)
    await registry.ensure_system_objects()
    handle = start_pod_runtime(state, die_with_parent=False)
    every = {"periodSeconds": 1, "failureThreshold": 1}
    probed = {
        "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "echo x >> hooks"]}}},
        "startupProbe": {"exec": {"command": ["test", "-e", "up"]}, **every},
        "livenessProbe": {"exec": {"command": ["sh", "-c", "echo x >> probes"]}, **every},
        "readinessProbe": {"exec": {"command": ["true"]}, **every},
    }
    there = {"registry": registry, "working_dir": str(work)}
    async with cluster(state, handle=handle, shut_down=False, **there) as node:
        await node.create("job-0", ["sleep", "100"], container=probed)
        await node.until("job-0", lambda pod: bool(_status(pod).get("ready")))
    (work / "up").unlink()
    (work / "probes").unlink(missing_ok=True)
    handle = start_pod_runtime(state, die_with_parent=False)
    assert handle.adopted
    changes = registry.subscribe("pods")
    async with cluster(state, handle=handle, **there) as node:
        await eventually(lambda: _lines(work / "probes") >= 3)
        assert all(_status(event.object)["ready"] for event in changes.pending())
        assert node.pod("job-0")["status"]["phase"] == "Running"
        assert node.events("Started") == ["Started container main"]
        assert _lines(work / "hooks") == 1
    await registry.close()


def _lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def _status(pod: dict[str, object]) -> dict[str, object]:
    status = pod["status"]
    assert isinstance(status, dict)
    found = status.get("containerStatuses") or [{}]
    return dict(found[0])
