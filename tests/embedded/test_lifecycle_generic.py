"""GenericJob with real processes: variables, a Service for each replica, rules."""

from __future__ import annotations

import json

from tests.embedded.command_line import Object, shell, until
from tests.embedded.lifecycle_yard import (
    START_SECONDS,
    Yard,
    condition,
    generic,
    replicas,
    shared_yard,
    template,
)

WORKERS = 3
SERVICE_PORT, POD_PORT = 2222, 12222
MEET = """\
import http.server, json, os, pathlib, sys, threading, time, urllib.request

config, wanted = json.loads(os.environ["TF_CONFIG"]), int(sys.argv[1])
task, folder = config["task"], pathlib.Path("/data/meeting")
me = f"{task['type']}-{task['index']}"
folder.mkdir(exist_ok=True)

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(me.encode())

server = http.server.ThreadingHTTPServer(("", int(sys.argv[2])), Answer)
threading.Thread(target=server.serve_forever, daemon=True).start()
peers = {f"{kind}-{i}": address
         for kind, addresses in config["cluster"].items() for i, address in enumerate(addresses)}
reached = {}
while len(reached) < len(peers) - 1:
    for name, address in peers.items():
        try:
            if name != me and name not in reached:
                with urllib.request.urlopen(f"http://{address}/", timeout=5) as answer:
                    reached[name] = answer.read().decode()
        except OSError:
            time.sleep(0.05)
draft = folder / f".{me}"
draft.write_text(json.dumps({"reached": reached, "addresses": peers, "args": sys.argv[3:]}))
draft.rename(folder / me)
while len(list(folder.glob("[a-z]*"))) < wanted + 1:
    time.sleep(0.05)
"""


cluster = shared_yard("generic")


def _tf_config() -> str:
    """As TensorFlow wants it; `$(rank)` is a number and has no quotes."""
    addresses = {
        replica_type: [
            f"$(service.{replica_type}[{i}].host):$(service.port[tf])" for i in range(count)
        ]
        for replica_type, count in (("chief", 1), ("worker", WORKERS))
    }
    return (
        f'{{"cluster": {json.dumps(addresses)}, "task": {{"type": "$(type)", "index": $(rank)}}}}'
    )


def test_four_replicas_reach_each_other_by_the_services_in_their_tf_config(cluster: Yard) -> None:
    command = ["python", "-c", MEET, "$(replicas[worker])", str(POD_PORT), "$(HOME_OF_NOBODY)"]
    pods = template(command, env={"TF_CONFIG": _tf_config()})
    ports = [{"name": "tf", "port": SERVICE_PORT, "targetPort": POD_PORT}]
    cluster.submit(
        generic(
            "tf",
            replicas("chief", 1, pods),
            replicas("worker", WORKERS, pods),
            service={"ports": ports},
            successRules=[{"chief": [0], "worker": list(range(WORKERS))}],
        )
    )
    status = cluster.end("tf", "Succeeded")
    names = ["chief-0", *(f"worker-{i}" for i in range(WORKERS))]
    for name in names:
        told = json.loads(cluster.file("meeting", name).read_text())
        others = {other for other in names if other != name}
        assert told["reached"] == {other: other for other in others}
        assert told["addresses"] == {other: f"tf-{other}:{SERVICE_PORT}" for other in names}
        assert told["args"] == ["$(HOME_OF_NOBODY)"], "what is not ours stays as it is"
    assert status["restartCount"] == 0


def _waiting(name: str, codes: list[int]) -> Object:
    """Each replica runs until a file of its name appears, and ends with its code."""
    cases = " ".join(f"{i}) exit {code};;" for i, code in enumerate(codes))
    wait = f"until [ -e /data/{name}-$ME ]; do sleep 0.05; done; case $ME in {cases} esac"
    pods = template(shell(wait), env={"ME": "$(rank)"})
    return replicas("worker", len(codes), pods)


def _let_end(cluster: Yard, name: str, index: int) -> None:
    cluster.file(f"{name}-{index}").touch()


def test_a_job_succeeds_when_any_success_rule_holds_as_a_whole(cluster: Yard) -> None:
    rules = {"successRules": [{"worker": [0, 1]}, {"worker": [2]}]}
    for name in ("both", "other"):
        cluster.submit(generic(name, _waiting(name, [0, 0, 0]), **rules))
        cluster.await_phase(name, "Running")
    _let_end(cluster, "both", 0)
    until(lambda: cluster.pod_phases("both")["worker-0"] == "Succeeded", "worker-0 has ended")
    assert cluster.phase("both") == "Running"
    _let_end(cluster, "both", 1)
    _let_end(cluster, "other", 2)
    cluster.end("both", "Succeeded")
    cluster.end("other", "Succeeded")
    assert cluster.pod_phases("other")["worker-0"] == "Running", "after success it is left"


def test_a_job_fails_when_any_failure_rule_holds_as_a_whole(cluster: Yard) -> None:
    name = "rule"
    rules = {"failureRules": [{"worker": [0, 1]}], "successRules": [{"worker": [2]}]}
    cluster.submit(generic(name, _waiting(name, [3, 4, 0]), **rules))
    cluster.await_phase(name, "Running")
    _let_end(cluster, name, 0)
    until(
        lambda: condition(cluster.status(name), "ReplicaFailure").get("status") == "True",
        "the failure of worker-0 is told",
        START_SECONDS,
    )
    assert cluster.phase(name) not in ("Succeeded", "Failed")
    _let_end(cluster, name, 1)
    status = cluster.end(name, "Failed")
    told = 'The job is failed with rule: {"worker":["0","1"]}'
    assert condition(status, "Failed")["message"] == told
    assert "rule" in cluster.run("explain", name)


def test_a_job_fails_when_no_success_rule_can_be_met_any_more(cluster: Yard) -> None:
    name = "hopeless"
    rules = {"successRules": [{"worker": [0, 1]}, {"worker": [1, 2]}]}
    cluster.submit(generic(name, _waiting(name, [0, 5, 0]), **rules))
    cluster.await_phase(name, "Running")
    _let_end(cluster, name, 1)
    status = cluster.end(name, "Failed")
    assert "worker-1 failed with exit code 5" in condition(status, "Failed")["message"]


def test_each_replica_restarts_alone_within_a_limit_of_its_own(cluster: Yard) -> None:
    """The Service keeps its address meanwhile."""
    count = "echo x >> /data/alone-$ME; [ $(wc -l < /data/alone-$ME) -gt $ME ]"
    pods = template(shell(count), env={"ME": "$(rank)"})
    ports = [{"name": "any", "port": SERVICE_PORT}]
    spec = replicas("worker", 3, pods, limit=2)
    cluster.submit(generic("alone", spec, service={"ports": ports}))
    service = "/api/v1/namespaces/default/services/alone-worker-2"
    until(lambda: cluster.api.request("GET", service)[0] == 200, "its Service is there")
    address = cluster.api.request("GET", service)[1]["spec"]["clusterIP"]
    status = cluster.end("alone", "Succeeded")
    assert [len(cluster.lines(f"alone-{i}")) for i in range(3)] == [1, 2, 3]
    assert status["restartCount"] == 3
    assert cluster.api.request("GET", service)[1]["spec"]["clusterIP"] == address
