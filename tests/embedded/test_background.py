"""`trainyard up` and `down`: the cluster in the background, also when it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.embedded.command_line import CommandLine, job, shell, until
from tests.tools import kubectl_path, oldest_and_newest_kubectl


def _pid(trainyard: CommandLine) -> int:
    return int(json.loads((trainyard.state / "cluster.json").read_text())["pid"])


def test_up_is_ready_when_it_returns_and_a_second_up_says_so(trainyard: CommandLine) -> None:
    assert "the cluster is up" in trainyard.run("up")
    assert "the cluster is already up" in trainyard.run("up")
    assert "jobs: none" in trainyard.run("status")
    assert trainyard.run("kubeconfig").strip() == str(trainyard.state / "kubeconfig")


def test_two_at_a_time_that_start_a_cluster_get_the_same_one(trainyard: CommandLine) -> None:
    both = [trainyard.start("up") for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert all(f"process {_pid(trainyard)}," in text.splitlines()[0] for text in said), said


def test_down_ends_everything(trainyard: CommandLine) -> None:
    file = trainyard.manifest("m.yaml", job("long", shell("setsid sleep 3600"), replicas=2))
    trainyard.run("up")
    trainyard.run("submit", "-f", file)
    until(lambda: len(trainyard.processes("sleep 3600")) >= 2, "both replicas run")
    assert "the cluster is down" in trainyard.run("down")
    assert not trainyard.processes()


def test_jobs_survive_down_and_up(trainyard: CommandLine) -> None:
    """Objects are durable; only processes end with the cluster."""
    file = trainyard.manifest("m.yaml", job("done", ["/bin/true"]))
    trainyard.run("up")
    trainyard.run("submit", "-f", file)
    trainyard.run("wait", "done")
    trainyard.run("down")
    trainyard.run("up")
    assert "Succeeded" in trainyard.run("list")


def test_the_kubeconfig_of_an_earlier_life_goes_on_working(trainyard: CommandLine) -> None:
    trainyard.run("up")
    before = (trainyard.state / "kubeconfig").read_text()
    trainyard.run("down")
    trainyard.run("up")
    assert (trainyard.state / "kubeconfig").read_text() == before


def test_kill_9_of_the_cluster_leaves_replicas_training_and_the_next_up_finds_them(
    trainyard: CommandLine,
) -> None:
    release = trainyard.folder / "go"
    # A shell would fork for each thing that it does, and its children look like replicas at first.
    trains = f"""
import os, time
print("step 1", flush=True)
while not os.path.exists({str(release)!r}):
    time.sleep(0.05)
print("step 2\\ntrained")
"""
    file = trainyard.manifest("m.yaml", job("survivor", [sys.executable, "-c", trains], replicas=2))
    trainyard.run("up")
    trainyard.run("submit", "-f", file)
    until(lambda: len(trainyard.processes("trained")) == 2, "both replicas run")
    replicas = set(trainyard.processes("trained"))
    os.kill(_pid(trainyard), signal.SIGKILL)
    until(lambda: "no cluster is up" in trainyard.run("status", code=None), "it is gone")
    assert set(trainyard.processes("trained")) == replicas
    trainyard.run("up")
    assert set(trainyard.processes("trained")) == replicas
    release.touch()
    trainyard.run("wait", "survivor")
    shown = trainyard.run("list")
    assert "Succeeded" in shown
    logs = trainyard.run("logs", "survivor")
    for rank in range(2):
        lines = [line for line in logs.splitlines() if line.startswith(f"[worker-{rank}]")]
        assert len(lines) == 3
        assert lines[-1].endswith("trained")


def test_a_replica_that_ended_while_no_cluster_ran_is_counted_exactly(
    trainyard: CommandLine,
) -> None:
    release = trainyard.folder / "go"
    script = f"while ! test -e {release}; do sleep 0.05; done; exit 5"
    file = trainyard.manifest("m.yaml", job("lost", shell(script)))
    trainyard.run("up")
    trainyard.run("submit", "-f", file)
    until(lambda: trainyard.processes("exit 5"), "the replica runs")
    os.kill(_pid(trainyard), signal.SIGKILL)
    until(lambda: "no cluster is up" in trainyard.run("status", code=None), "it is gone")
    release.touch()
    until(lambda: not trainyard.processes("exit 5"), "the replica has ended")
    trainyard.run("up")
    until(lambda: "Failed" in trainyard.run("list"), "the job has failed")
    assert "exit code 5" in trainyard.run("show", "lost")


def test_down_after_kill_9_ends_the_replicas_too(trainyard: CommandLine) -> None:
    file = trainyard.manifest("m.yaml", job("orphan", ["sleep", "3600"]))
    trainyard.run("up")
    trainyard.run("submit", "-f", file)
    until(lambda: trainyard.processes("sleep 3600"), "the replica runs")
    os.kill(_pid(trainyard), signal.SIGKILL)
    until(lambda: "no cluster is up" in trainyard.run("status", code=None), "it is gone")
    trainyard.run("down")
    assert not trainyard.processes()


def test_down_after_kill_9_and_up_waits_for_the_end_of_what_was_found(
    trainyard: CommandLine,
) -> None:
    """The cluster is not its parent, and was gone before it."""
    for _ in range(3):
        trainyard.run("up")
        os.kill(_pid(trainyard), signal.SIGKILL)
        trainyard.run("up")
        assert "the cluster is down" in trainyard.run("down")
        assert not trainyard.processes()


def test_a_cluster_that_was_killed_says_so_until_it_is_brought_down(trainyard: CommandLine) -> None:
    trainyard.run("up")
    os.kill(_pid(trainyard), signal.SIGKILL)
    until(lambda: "no cluster is up" in trainyard.run("status", code=None), "it is gone")
    assert "it was killed; `trainyard up` takes over" in trainyard.run("status", code=3)
    assert "it was killed" in trainyard.run("list", code=1)
    trainyard.run("down")
    assert "it was killed" not in trainyard.run("status", code=3)


def test_a_cluster_that_is_stopped_is_named_at_once_by_all_that_ask_it(
    trainyard: CommandLine,
) -> None:
    file = trainyard.manifest("m.yaml", job("kept", ["sleep", "3600"]))
    trainyard.run("up")
    trainyard.run("submit", "-f", file)
    until(lambda: trainyard.processes("sleep 3600"), "the replica runs")
    os.kill(_pid(trainyard), signal.SIGSTOP)
    remedy = f"let it go on with: kill -CONT {_pid(trainyard)}"
    commands = (["list"], ["submit", "-f", file], ["status"], ["up"], ["logs", "kept"])
    for command in (*commands, ["run", "-f", file], ["doctor"], ["top"]):
        assert remedy in trainyard.run(*command, code=1)
    os.kill(_pid(trainyard), signal.SIGCONT)
    assert "Running" in trainyard.run("list")
    os.kill(_pid(trainyard), signal.SIGSTOP)
    trainyard.run("down")
    assert not trainyard.processes()


def test_a_cluster_that_ends_without_its_node_says_why_and_replaces_the_pods_in_its_next_life(
    trainyard: CommandLine,
) -> None:
    trainyard.run("up")
    trainyard.run("submit", "-f", trainyard.manifest("m.yaml", job("moved", ["sleep", "3600"])))
    trainyard.run("wait", "moved", "--for", "phase=Running")
    (pod_runtime,) = (
        Path(f"/proc/{_pid(trainyard)}/task/{_pid(trainyard)}/children").read_text().split()
    )
    os.kill(int(pod_runtime), signal.SIGKILL)
    reason = "the last one failed: the node's shim process is gone, and all pods with it"
    until(lambda: reason in trainyard.run("status", code=None), "the cluster ends")
    said = trainyard.run("status", code=3)
    assert "replicas that run go on" not in said
    assert not trainyard.processes()
    trainyard.run("up")
    until(lambda: trainyard.processes("sleep 3600"), "the replica runs again")
    trainyard.run("wait", "moved", "--for", "phase=Running")
    assert "attempt 1 was ended by worker-0 (NodeLost)" in trainyard.run("explain", "moved")
    assert "and all pods with it" in trainyard.run("events", "moved")
    assert "Restarts:     0 of" in trainyard.run("show", "moved")


def test_replicas_that_were_lost_with_their_cluster_and_its_node_are_told_as_that(
    trainyard: CommandLine,
) -> None:
    """As after a power cut."""
    trainyard.run("up")
    trainyard.run("submit", "-f", trainyard.manifest("m.yaml", job("moved", ["sleep", "3600"])))
    trainyard.run("wait", "moved", "--for", "phase=Running")
    cluster = _pid(trainyard)
    (shim,) = Path(f"/proc/{cluster}/task/{cluster}/children").read_text().split()
    os.kill(cluster, signal.SIGKILL)
    os.kill(int(shim), signal.SIGKILL)
    until(lambda: not trainyard.processes(), "everything has ended")
    trainyard.run("up")
    until(lambda: trainyard.processes("sleep 3600"), "the replica runs again")
    trainyard.run("wait", "moved", "--for", "phase=Running")
    assert "attempt 1 was ended by worker-0 (NodeLost)" in trainyard.run("explain", "moved")
    assert "and all pods with it" in trainyard.run("events", "moved")
    assert "Restarts:     0 of" in trainyard.run("show", "moved")


@pytest.mark.parametrize("version", oldest_and_newest_kubectl())
def test_kubectl_follows_a_job_from_submission_to_deletion(
    trainyard: CommandLine, version: str
) -> None:
    kubectl = kubectl_path(version)
    trainyard.run("up")
    environment = {**trainyard.environment, "KUBECONFIG": str(trainyard.state / "kubeconfig")}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [kubectl, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    script = shell("echo started; sleep 1; echo finished")
    run("apply", "-f", trainyard.manifest("m.yaml", job("watched", script, replicas=2)))
    until(lambda: "Running" in run("get", "pj"), "kubectl sees it run")
    header = run("get", "pj").splitlines()[0].split()
    assert {"NAME", "PHASE", "RUNNING", "RESTARTS", "AGE"} <= set(header)
    pod = run("get", "pods", "-o", "name").splitlines()[0]
    assert run("logs", "-f", pod).splitlines() == ["started", "finished"]
    run("wait", "pj/watched", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s")
    described = run("describe", "pj", "watched")
    assert "NewReplica" in described
    assert "The job has been initialized successfully." in described
    run("delete", "pj", "watched")
    until(lambda: not run("get", "pods", "-o", "name"), "its pods are gone")
    assert "watched" not in run("get", "services", "-o", "name")
    assert not trainyard.processes("echo started")


def test_200_one_pod_jobs_all_end(trainyard: CommandLine) -> None:
    jobs = [job(f"small-{number}", ["/bin/true"]) for number in range(200)]
    trainyard.run("up")
    trainyard.run("submit", "-f", trainyard.manifest("m.yaml", *jobs))
    until(lambda: "200 Succeeded" in trainyard.run("status"), "all succeeded")
