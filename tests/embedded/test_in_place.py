"""Restarts in place with real processes: the same pods, counted as with new ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.embedded import lifecycle_training as training
from tests.embedded.command_line import Object, until
from tests.embedded.launching import require_programs
from tests.embedded.lifecycle_yard import (
    START_SECONDS,
    Yard,
    condition,
    ends_of,
    kill,
    pytorch,
    shared_yard,
    template,
)
from trainyard.embedded.chaos_faults.target_processes import find_replicas, process_environment
from trainyard.machine.state_folder import Paths
from trainyard.payloads.processes import Process, name_of, read

IN_PLACE = {"restartMode": "InPlace"}
HOLDER = b"/t9k/hold/hold.py"


cluster = shared_yard("in-place")


def processes_of(cluster: Yard, name: str, number: int) -> list[int]:
    """What holds a rank's pod has started of the command, the oldest first."""
    found = cluster.with_environment(f"/data/{name}", RANK=str(number))
    holders = {p for p in found if HOLDER in Path(f"/proc/{p}/cmdline").read_bytes()}
    ours = [each for each in map(read, set(found) - holders) if each and each.parent in holders]
    return [each.pid for each in sorted(ours, key=lambda each: each.started)]


def pod_runtime_above(pid: int) -> Process:
    """What has started the pod of a process."""
    found = read(pid)
    while found is not None and name_of(found.pid) != "trainyard-shim":
        found = read(found.parent)
    assert found is not None
    return found


def rank(cluster: Yard, name: str, number: int) -> int:
    """The process of a rank, which torchrun may have started, and not what holds its pod."""
    found = cluster.with_environment(f"/data/{name}", RANK=str(number))
    (pid,) = (p for p in found if HOLDER not in Path(f"/proc/{p}/cmdline").read_bytes())
    return pid


@pytest.mark.parametrize("launch", ["plain", "torchrun"])
def test_one_of_four_ranks_killed_restarts_all_in_their_pods(cluster: Yard, launch: str) -> None:
    require_programs("torchrun")
    name = f"place-{launch}"
    command, spec = training.command(name), Object()
    if launch == "torchrun":
        command, spec = training.arguments(cluster, name), {"torchrunConfig": {"enabled": True}}
    pods = template(command, grace=60)  # so long may it take
    job = pytorch(name, pods, replicas=4, runPolicy=IN_PLACE, **spec)
    cluster.submit(job)
    until(lambda: training.step(cluster, name) >= 5, "it trains", START_SECONDS)
    before = cluster.uids(name)
    kill(rank(cluster, name, 2))
    step = training.step(cluster, name)
    training.let_go(cluster, name)
    status = cluster.end(name, "Succeeded")
    assert ends_of(status) == [("worker-2", 137), ("", None)], cluster.story(name)
    assert status["backoffCount"] == 1
    assert status["tasks"][0]["restartCount"] == 4
    assert cluster.uids(name) == before, cluster.story(name)
    training.check_result(cluster, name, 4, begun_after=step - 1)
    assert len(training.starts(cluster, name)) == 8
    attempts = {
        pod["metadata"]["annotations"]["trainyard.dev/attempt"]
        for pod in cluster.pods(name).values()
    }
    assert attempts == {"2"}
    marker = "trainyard: attempt 2 starts here, after attempt 1 in this pod"
    logs = (cluster.state / "pods").glob(f"default_{name}-*/main/0.log")
    assert sum(log.read_text().count(marker) for log in logs) == 4


def test_the_next_attempt_begins_in_a_python_that_has_waited_for_it(cluster: Yard) -> None:
    name = "place-preloaded"
    policy = {**IN_PLACE, "preload": ["torch"]}
    job = pytorch(name, template(training.command(name), grace=60), replicas=2, runPolicy=policy)
    cluster.submit(job)
    until(
        lambda: all(len(processes_of(cluster, name, number)) == 2 for number in range(2)),
        "beside each rank one waits",
        START_SECONDS,
    )
    (_, first), (victim, second) = (processes_of(cluster, name, number) for number in range(2))
    until(lambda: training.step(cluster, name) >= 3, "it trains", START_SECONDS)
    assert len(training.starts(cluster, name)) == 2
    before = cluster.uids(name)
    (hit,) = find_replicas(pod_runtime_above(victim), [process_environment(victim)["HOSTNAME"]])
    assert hit.main.pid == victim, "trainyard chaos would hit what holds the pod, or what waits"
    kill(victim)
    until(lambda: len(training.starts(cluster, name)) == 4, "they begin again", START_SECONDS)
    assert [processes_of(cluster, name, number)[0] for number in range(2)] == [first, second]
    training.let_go(cluster, name)
    status = cluster.end(name, "Succeeded")
    assert ends_of(status) == [("worker-1", 137), ("", None)], cluster.story(name)
    assert cluster.uids(name) == before, cluster.story(name)
    training.check_result(cluster, name, 2, begun_after=2)


def test_a_pod_that_is_deleted_has_all_get_new_ones(cluster: Yard) -> None:
    name = "place-deleted"
    job = pytorch(name, template(training.command(name)), replicas=2, runPolicy=IN_PLACE)
    cluster.submit(job)
    until(lambda: training.step(cluster, name) >= 3, "it trains", START_SECONDS)
    before = cluster.uids(name)
    pod = cluster.pods(name)["worker-1"]["metadata"]["name"]
    cluster.api.request("DELETE", f"/api/v1/namespaces/default/pods/{pod}")
    training.let_go(cluster, name)
    status = cluster.end(name, "Succeeded")
    assert status["backoffCount"] == 0
    assert not set(before.values()) & set(cluster.uids(name).values()), cluster.story(name)


def test_what_fails_at_each_start_ends_the_job_by_its_own_code(cluster: Yard) -> None:
    """The budget is spent in one pod, which then ends as the status says."""
    name = "place-failing"
    script = f"echo >>/data/{name}; echo try `wc -l </data/{name}` >&2; exit 3"
    policy = {**IN_PLACE, "backoffLimit": 2}
    cluster.submit(pytorch(name, template(["sh", "-c", script]), runPolicy=policy))
    status = cluster.end(name, "Failed")
    assert ends_of(status) == [("worker-0", 3)] * 3
    assert status["backoffCount"] == 2
    assert len(cluster.lines(name)) == 3
    assert cluster.run("logs", "-p", name) == "try 2\n"
    assert condition(status, "ReplicaFailure")["message"].endswith(": try 3")
    until(
        lambda: cluster.pod_phases(name) == {"worker-0": "Failed"},
        "the pod says what the status says",
        START_SECONDS,
    )
    pod = cluster.pods(name)["worker-0"]
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert pod["metadata"]["annotations"]["trainyard.dev/attempt"] == "3"


def test_the_word_outlives_the_controller(cluster: Yard) -> None:
    """Cluster and controller are killed, and a rank; the next ones restart it where it is."""
    name = "place-killed"
    pods = template(training.command(name), grace=60)
    job = pytorch(name, pods, replicas=2, runPolicy=IN_PLACE)
    cluster.submit(job)
    until(lambda: training.step(cluster, name) >= 3, "it trains", START_SECONDS)
    before, victim = cluster.uids(name), rank(cluster, name, 1)
    kill(json.loads(Paths(cluster.state).record.read_text())["pid"])
    kill(victim)
    cluster.run("up", "--volume", f"data={cluster.data}")
    training.let_go(cluster, name)
    status = cluster.end(name, "Succeeded")
    assert ends_of(status) == [("worker-1", 137), ("", None)], cluster.story(name)
    assert (status["backoffCount"], cluster.uids(name)) == (1, before), cluster.story(name)
