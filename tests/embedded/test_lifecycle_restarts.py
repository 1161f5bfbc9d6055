"""Restarts with real processes: incidents, exit codes, budgets, replicas taken away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.embedded import lifecycle_training as training
from tests.embedded.command_line import CommandLine, Object, job, shell, until
from tests.embedded.launching import require_programs
from tests.embedded.lifecycle_yard import (
    START_SECONDS,
    Yard,
    condition,
    ends_of,
    environment_of,
    generic,
    kill,
    parent_of,
    pytorch,
    replicas,
    shared_yard,
    template,
)
from tests.embedded.node_cluster import are_limits_enforced

PODS = "/api/v1/namespaces/default/pods"
CODES = (1, 130, 137, 138, 143)
RESTARTABLE = CODES[1:]
ENDINGS = {
    1: "exit 1",
    130: "kill -INT $$$$",
    137: "kill -KILL $$$$",
    138: "exit 138",
    143: "kill -TERM $$$$",
}
"""How a shell script comes to each code. Kubernetes makes `$$` of `$$$$`."""


cluster = shared_yard("restarts")


@pytest.mark.parametrize("launch", ["plain", "torchrun"])
def test_one_of_four_ranks_killed_is_one_incident_and_the_job_succeeds_from_its_checkpoint(
    cluster: Yard, launch: str
) -> None:
    """All four restart together, and it costs one of the budget, though all four fail."""
    require_programs("torchrun")
    name = f"killed-{launch}"
    command, spec = training.command(name), Object()
    if launch == "torchrun":
        command, spec = training.arguments(cluster, name), {"torchrunConfig": {"enabled": True}}
    cluster.submit(pytorch(name, template(command), replicas=4, **spec))
    until(lambda: training.step(cluster, name) >= 5, "it trains", START_SECONDS)
    before = cluster.uids(name)
    (victim,) = cluster.with_environment(f"/data/{name}", RANK="2", WORLD_SIZE="4")
    kill(victim)
    step = training.step(cluster, name)
    training.let_go(cluster, name)
    status = cluster.end(name, "Succeeded")
    after = cluster.uids(name)
    killed, last = ends_of(status)
    assert killed == ("worker-2", 137), cluster.story(name)
    assert last == ("", None)
    assert status["backoffCount"] == 1
    assert status["tasks"][0]["restartCount"] == 4
    assert set(after) == set(before)
    assert not set(before.values()) & set(after.values()), "all restart together"
    training.check_result(cluster, name, 4, begun_after=step - 1)
    assert len(training.starts(cluster, name)) == 8


def test_survivors_of_a_killed_torchrun_agent_take_its_successor_in(cluster: Yard) -> None:
    """With maxRestarts the agents that live on keep their pods and meet the new one."""
    require_programs("torchrun")
    name, config = "rejoin", {"enabled": True, "maxRestarts": 3}
    pods = template(training.arguments(cluster, name))
    cluster.submit(pytorch(name, pods, replicas=3, torchrunConfig=config))
    until(lambda: training.step(cluster, name) >= 5, "it trains", START_SECONDS)
    before = cluster.uids(name)
    (rank,) = cluster.with_environment(f"/data/{name}", RANK="1", WORLD_SIZE="3")
    replica = f"worker-{environment_of(rank)['HOSTNAME'].rsplit('-', 1)[1]}"
    kill(parent_of(rank))
    step = training.step(cluster, name)
    training.let_go(cluster, name)
    status = cluster.end(name, "Succeeded")
    after = cluster.uids(name)
    assert {r for r in after if after[r] != before[r]} == {replica}, cluster.story(name)
    assert ends_of(status) == [(replica, 137), ("", None)]
    assert status["backoffCount"] == 1
    assert status["tasks"][0]["restartCount"] == 1
    training.check_result(cluster, name, 3, begun_after=step - 1)


PLAIN_ENDING = """\
mkdir -p /data/{name}; cd /data/{name}; echo $RANK >> starts
if [ $RANK = 0 ]; then until [ -e done ]; do sleep 0.05; done; exit 0; fi
if [ $(grep -c 1 starts) -gt {failures} ]; then touch done; exit 0; fi
{ending}
"""


def test_exit_code_restarts_a_plain_job_for_signals_and_138_only(cluster: Yard) -> None:
    """Rank 1 of 2 ends twice with each code; three of the codes come of a real signal."""
    names = {code: f"plain-{code}" for code in CODES}
    scripts = {
        code: PLAIN_ENDING.format(name=name, failures=2, ending=ENDINGS[code])
        for code, name in names.items()
    }
    cluster.submit(
        *(
            pytorch(name, template(shell(scripts[code])), replicas=2, policy="ExitCode")
            for code, name in names.items()
        )
    )
    for code in RESTARTABLE:
        status = cluster.end(names[code], "Succeeded")
        assert ends_of(status) == [("worker-1", code)] * 2 + [("", None)]
        assert status["backoffCount"] == 2
        assert sorted(cluster.lines(names[code], "starts")) == ["0"] * 3 + ["1"] * 3
    status = cluster.end(names[1], "Failed")
    assert ends_of(status) == [("worker-1", 1)]
    assert status["backoffCount"] == 0
    assert "worker-1 failed with exit code 1" in condition(status, "Failed")["message"]


TORCHRUN_ENDING = """\
import os, pathlib, signal, sys
starts, code = pathlib.Path(sys.argv[1]), int(sys.argv[2])
with starts.open("a") as file:
    file.write("start\\n")
if len(starts.read_text().split()) == 1:
    if code in (130, 137, 143):
        signal.signal(code - 128, signal.SIG_DFL) if code != 137 else None
        os.kill(os.getpid(), code - 128)
    sys.exit(code)
"""


def test_exit_code_restarts_a_torchrun_job_for_signals_and_138_only(cluster: Yard) -> None:
    """torchrun itself would have made 1 of every code; here the rank's own code decides."""
    require_programs("torchrun")
    cluster.file("ending.py").write_text(TORCHRUN_ENDING)
    names = {code: f"torchrun-{code}" for code in CODES}
    cluster.submit(
        *(
            pytorch(
                name,
                template(["/data/ending.py", f"/data/{name}", str(code)]),
                policy="ExitCode",
                torchrunConfig={"enabled": True},
            )
            for code, name in names.items()
        )
    )
    for code in RESTARTABLE:
        status = cluster.end(names[code], "Succeeded")
        assert ends_of(status) == [("worker-0", code), ("", None)]
        assert status["backoffCount"] == 1
        assert len(cluster.lines(names[code])) == 2
    status = cluster.end(names[1], "Failed")
    assert ends_of(status) == [("worker-0", 1)]
    assert status["backoffCount"] == 0


def test_a_spent_budget_fails_the_job_with_replica_code_and_last_lines(cluster: Yard) -> None:
    script = shell("echo attempt >> /data/spent; echo 'no learning rate given' >&2; exit 7")
    cluster.submit(pytorch("spent", template(script), runPolicy={"backoffLimit": 2}))
    status = cluster.end("spent", "Failed")
    assert ends_of(status) == [("worker-0", 7)] * 3
    assert status["backoffCount"] == 2
    assert len(cluster.lines("spent")) == 3
    failed = condition(status, "Failed")
    assert failed["reason"] == "BackoffLimitExceeded"
    assert "worker-0 failed with exit code 7" in failed["message"]
    assert "no learning rate given" in condition(status, "ReplicaFailure")["message"]
    explained = cluster.run("explain", "spent")
    for told in ("worker-0", "exit code 7", "no learning rate given"):
        assert told in explained


def test_the_summary_of_run_tells_replica_code_and_last_lines_of_a_spent_budget(
    tmp_path: Path,
) -> None:
    line = CommandLine(tmp_path)
    script = shell("echo 'no learning rate given' >&2; exit 7")
    spent = job("spent", script, policy="OnFailure", runPolicy={"backoffLimit": 1})
    output = line.run("run", "-f", line.manifest("m.yaml", spent), code=1)
    summary = output[output.index("PyTorchTrainingJob spent: Failed") :]
    assert "1 restart" in summary
    assert "worker-0 failed (exit code 7)" in summary
    assert "no learning rate given" in summary
    assert not line.processes()


HUNGRY_ONCE = """\
import os
with open("/data/hungry", "a") as file:
    file.write("x")
if os.path.getsize("/data/hungry") == 1:
    bytearray(900_000_000)
"""


def test_running_out_of_memory_is_told_and_costs_one_restart(cluster: Yard) -> None:
    if not are_limits_enforced():
        pytest.skip("control groups cannot be written here")
    limited = template(["python", "-c", HUNGRY_ONCE], resources={"limits": {"memory": "200Mi"}})
    cluster.submit(pytorch("hungry", limited, policy="ExitCode"))
    status = cluster.end("hungry", "Succeeded")
    killed, _ = status["attempts"]
    assert (killed["exitCode"], killed["reason"]) == (137, "OOMKilled")
    assert status["backoffCount"] == 1


WAIT_FOR_IT = "until [ -e /data/{name} ]; do sleep 0.05; done"


def _delete(cluster: Yard, pod: Object) -> None:
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    body = {"preconditions": {"uid": uid}}
    code, answer = cluster.api.request("DELETE", f"{PODS}/{name}", body)
    assert code in (200, 202), answer


def _evict(cluster: Yard, pod: Object) -> None:
    """As a kubelet short of memory does: it ends the pod and says why in its status."""
    status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}
    uid = pod["metadata"]["uid"]
    change = {"metadata": {"uid": uid}, "status": status}  # no other pod of its name
    path = f"{PODS}/{pod['metadata']['name']}/status"
    code, answer = cluster.api.request("PATCH", path, change, "application/merge-patch+json")
    assert code == 200, answer


@pytest.mark.parametrize("take_away", [_delete, _evict], ids=["deleted", "evicted"])
@pytest.mark.parametrize("kind", ["PyTorchTrainingJob", "GenericJob"])
def test_a_replica_that_is_taken_away_comes_again_at_no_cost(
    cluster: Yard, kind: str, take_away: Callable[[Yard, Object], None]
) -> None:
    """Even where the policy restarts nothing."""
    name = f"taken-{kind[:3].lower()}-{take_away.__name__.strip('_')}"
    pods = template(shell(WAIT_FOR_IT.format(name=name)))
    if kind == "GenericJob":
        cluster.submit(generic(name, replicas("worker", 2, pods, policy="Never")))
    else:
        cluster.submit(pytorch(name, pods, replicas=2, policy="Never"))
    cluster.await_phase(name, "Running")
    before = cluster.pods(name)["worker-1"]
    take_away(cluster, before)
    until(
        lambda: (
            cluster.uids(name).get("worker-1") not in (None, before["metadata"]["uid"])
            and set(cluster.pod_phases(name).values()) == {"Running"}
        ),
        "worker-1 runs again",
    )
    cluster.file(name).touch()
    status = cluster.end(name, "Succeeded")
    assert status.get("backoffCount", 0) == 0, cluster.story(name)
    assert status.get("restartCount", 0) == 0
    assert not status["tasks"][0].get("restartCount")
    assert len(status["attempts"]) == 2
