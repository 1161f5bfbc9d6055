"""`trainyard run`, as a user has it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

from tests.embedded.command_line import CommandLine, job, shell, until
from trainyard.client.job_follower import Follower
from trainyard.client.job_view import Job
from trainyard.kinds.kind_registry import KINDS
from trainyard.kube.client import Client

_FOREVER = "sleep 3600"


def test_a_job_that_succeeds_ends_with_0_and_says_where_its_logs_are(
    trainyard: CommandLine,
) -> None:
    output = trainyard.run("run", "-f", trainyard.manifest("m.yaml", job("fine", ["/bin/true"])))
    assert "PyTorchTrainingJob fine: Succeeded after" in output
    (logs,) = re.findall(r"logs: (\S+)", output)
    assert list(Path(logs).rglob("*.log"))


class Lines:
    """A screen that keeps the lines of logs."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing to put back."""

    def job_changed(self, job: Job) -> None:
        """Not looked at."""

    def log_lines(self, job: Job, source: str, lines: Sequence[str]) -> None:
        self.found.extend(f"{source}: {line}" for line in lines)

    is_live = False

    def line_grew(self, job: Job, source: str, text: str) -> None:
        """Not looked at."""

    def warning(self, about: str, message: str) -> None:
        """Not looked at."""

    def note(self, text: str) -> None:
        """Not looked at."""


async def test_logs_of_pods_that_are_known_only_after_their_job_has_ended_are_shown(
    trainyard: CommandLine,
) -> None:
    trainyard.run("up")
    manifest = trainyard.manifest("m.yaml", job("short", shell("echo from $RANK"), replicas=2))
    trainyard.run("submit", "-f", manifest)
    trainyard.run("wait", "short")
    screen, kind = Lines(), KINDS["PyTorchTrainingJob"]
    async with Client.unix(str(trainyard.state / "api.sock")) as client:
        ended = Job(kind, await client.get(kind.resource, "short", "default"))
        await Follower(client, [ended], screen).run()
    assert sorted(screen.found) == ["worker-0: from 0", "worker-1: from 1"]


def test_every_line_of_every_replica_is_shown_with_its_replica(trainyard: CommandLine) -> None:
    script = shell("for i in $(seq 50); do echo line $i of rank $RANK; done; printf end")
    output = trainyard.run(
        "run", "-f", trainyard.manifest("m.yaml", job("lines", script, replicas=2))
    )
    for rank in range(2):
        found = [line for line in output.splitlines() if line.startswith(f"[worker-{rank}]")]
        wanted = [f"[worker-{rank}] line {i} of rank {rank}" for i in range(1, 51)]
        assert found == [*wanted, f"[worker-{rank}] end"]


def test_a_failure_ends_with_1_and_shows_replica_exit_code_and_cause(
    trainyard: CommandLine,
) -> None:
    file = trainyard.manifest("m.yaml", job("bad", ["python", "no-such-script.py"]))
    output = trainyard.run("run", "-f", file, code=1)
    summary = output[output.index("PyTorchTrainingJob bad: Failed") :]
    assert "worker-0 failed (exit code 2)" in summary
    assert "no-such-script.py does not exist where the replica runs" in summary


def test_the_cause_of_a_failure_and_a_remedy_are_told_with_it(trainyard: CommandLine) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    unwell = job("unwell", ["sleep", "3600"], container={"livenessProbe": probe})
    said = trainyard.run("run", "-f", trainyard.manifest("unwell.yaml", unwell), code=1)
    assert "worker-0 failed (exit code 143)\n    its liveness probe failed, so it was ended" in said
    assert "  → raise failureThreshold" in said
    absent = job("absent", ["python", "nowhere.py"])
    said = trainyard.run("run", "-f", trainyard.manifest("absent.yaml", absent), code=1)
    assert "nowhere.py does not exist where the replica runs" in said
    assert "  → check the path" in said


def test_a_command_that_does_not_exist_ends_with_127(trainyard: CommandLine) -> None:
    file = trainyard.manifest("m.yaml", job("bad", ["no-such-command"]))
    output = trainyard.run("run", "-f", file, code=1)
    assert "worker-0 failed (exit code 127)" in output
    assert "the command no-such-command does not exist where the replica runs" in output


def test_a_replica_is_restarted_by_its_policy_until_the_budget_is_spent(
    trainyard: CommandLine,
) -> None:
    spec = job("again", shell("exit 7"), policy="OnFailure", runPolicy={"backoffLimit": 2})
    output = trainyard.run("run", "-f", trainyard.manifest("m.yaml", spec), code=1)
    assert re.search(r"again: Failed after .* 2 restarts", output)


def test_jobs_of_one_file_run_side_by_side_on_the_same_port(trainyard: CommandLine) -> None:
    listen = (
        "import os, socket, time; s = socket.socket(); "
        "s.bind(('', int(os.environ['MASTER_PORT']))); s.listen(); time.sleep(1); print('held')"
    )
    one, two = (job(name, ["python", "-c", listen]) for name in ("one", "two"))
    output = trainyard.run("run", "-f", trainyard.manifest("m.yaml", one, two))
    assert "[one/worker-0] held" in output
    assert "[two/worker-0] held" in output


def test_secrets_and_config_maps_of_the_file_come_before_its_jobs(trainyard: CommandLine) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "keys"},
        "stringData": {"token": "s3same"},
    }
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings"},
        "data": {"rate": "0.1"},
    }
    sources = [{"secretRef": {"name": "keys"}}, {"configMapRef": {"name": "settings"}}]
    main = {"envFrom": sources}
    reader = job("reader", shell("echo $token $rate"), container=main)
    output = trainyard.run("run", "-f", trainyard.manifest("m.yaml", reader, secret, config))
    assert "[worker-0] s3same 0.1" in output


def test_containers_start_in_the_manifests_folder(trainyard: CommandLine) -> None:
    (trainyard.folder / "sub").mkdir()
    file = trainyard.manifest("sub/m.yaml", job("where", shell("cat beside.txt")))
    (trainyard.folder / "sub" / "beside.txt").write_text("found it\n")
    assert "[worker-0] found it" in trainyard.run("run", "-f", file)


def test_a_namespace_that_does_not_exist_is_made(trainyard: CommandLine) -> None:
    manifest = job("elsewhere", ["/bin/true"])
    manifest["metadata"]["namespace"] = "team-a"
    output = trainyard.run("run", "-f", trainyard.manifest("m.yaml", manifest))
    assert "PyTorchTrainingJob elsewhere: Succeeded" in output


def test_a_generated_name_is_shown(trainyard: CommandLine) -> None:
    manifest = job("unused", ["/bin/true"])
    manifest["metadata"] = {"generateName": "night-"}
    output = trainyard.run("run", "-f", trainyard.manifest("m.yaml", manifest))
    assert re.search(r"PyTorchTrainingJob night-\w+: Succeeded", output)


def test_a_clusters_manifest_runs_unchanged_with_warnings(trainyard: CommandLine) -> None:
    main = {
        "image": "registry.example/private/train:v1",
        "resources": {"requests": {"cpu": "32", "memory": "256Gi"}},
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    pod = {
        "nodeSelector": {"gpu": "a100"},
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "datasets"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        ],
    }
    script = shell("touch /data/x /dev/shm/x && echo both written")
    manifest = job(
        "big",
        script,
        replicas=2,
        container=main,
        pod=pod,
        scheduler={"t9kScheduler": {"queue": "research"}},
    )
    output = trainyard.run("run", "-f", trainyard.manifest("m.yaml", manifest))
    assert output.count("both written") == 2
    for warning in (
        "the job requests more than this machine has",
        "queue research did not exist",
        "nodeSelector and nodeAffinity are taken to mean this machine",
        "--volume datasets=DIR",
    ):
        assert warning in output


def test_gpus_that_are_not_there_end_the_job_with_a_hint(trainyard: CommandLine) -> None:
    main = {"resources": {"limits": {"nvidia.com/gpu": 8}}}
    file = trainyard.manifest("m.yaml", job("gpus", ["/bin/true"], container=main, replicas=2))
    output = trainyard.run("run", "-f", file, code=1)
    (last,) = (
        line
        for line in output.splitlines()
        if line.startswith("PyTorchTrainingJob gpus cannot run")
    )
    assert output.count("16 nvidia.com/gpu, this machine has 0") == 1, output
    assert "need 16 nvidia.com/gpu, this machine has 0" in last
    assert "--resource nvidia.com/gpu=16" in last
    trainyard.run("run", "-f", file, "--resource", "nvidia.com/gpu=16")


def test_a_job_that_fits_is_not_given_up_for_one_that_never_does(trainyard: CommandLine) -> None:
    main = {"resources": {"limits": {"nvidia.com/gpu": 8}}}
    greedy, fits = job("greedy", ["/bin/true"], container=main), job("fits", shell("echo done"))
    output = trainyard.run("run", "-f", trainyard.manifest("m.yaml", greedy, fits), code=1)
    assert "PyTorchTrainingJob greedy cannot run here: needs 8 nvidia.com/gpu" in output
    assert "done" in output
    assert "PyTorchTrainingJob fits: Succeeded" in output


def test_strict_scheduling_bends_nothing(trainyard: CommandLine) -> None:
    main = {"resources": {"requests": {"cpu": "4096"}}}
    file = trainyard.manifest("m.yaml", job("big", ["/bin/true"], container=main))
    output = trainyard.run("run", "-f", file, "--strict-scheduling", code=1)
    assert "PyTorchTrainingJob big cannot run here: needs 4096 cpu" in output


def test_a_paused_job_is_said_to_be_and_ends_with_0(trainyard: CommandLine) -> None:
    manifest = job("later", ["/bin/true"], runMode={"pause": {"enabled": True}})
    output = trainyard.run("run", "-f", trainyard.manifest("m.yaml", manifest))
    assert "later is created paused: nothing runs" in output


def test_a_debug_job_says_how_to_connect_and_waits(trainyard: CommandLine) -> None:
    manifest = job("look", shell("echo trained"), runMode={"debug": {"enabled": True}})
    with trainyard.running("run", "-f", trainyard.manifest("m.yaml", manifest)) as process:
        until(lambda: trainyard.processes("sleep inf"), "the debug command runs")
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=120)[0]
    assert process.returncode == 130
    assert "trainyard exec look" in output
    assert "trained" not in output.replace("training", "")


def test_one_interrupt_stops_cleanly(trainyard: CommandLine) -> None:
    script = shell(f"trap 'echo saved; exit 0' TERM; echo up; {_FOREVER} & wait")
    file = trainyard.manifest("m.yaml", job("tidy", script))
    with trainyard.running("run", "-f", file) as process:
        until(lambda: trainyard.processes(_FOREVER), "the replica runs")
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=120)[0]
    assert process.returncode == 130
    assert "[worker-0] saved" in output
    assert not trainyard.processes()


def test_a_second_interrupt_stops_at_once(trainyard: CommandLine) -> None:
    script = shell(f"trap 'echo no' TERM; while :; do {_FOREVER}; done")
    file = trainyard.manifest("m.yaml", job("stubborn", script))
    with trainyard.running("run", "-f", file) as process:
        until(lambda: trainyard.processes(_FOREVER), "the replica runs")
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        while "Ctrl-C again" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    assert not trainyard.processes()


def test_an_interrupt_leaves_a_job_that_is_to_be_kept(trainyard: CommandLine) -> None:
    file = trainyard.manifest("m.yaml", job("kept", shell(f"echo up; {_FOREVER}")))
    try:
        with trainyard.running("run", "--keep", "-f", file) as process:
            until(lambda: trainyard.processes(_FOREVER), "the replica runs")
            process.send_signal(signal.SIGINT)
            output = process.communicate(timeout=120)[0]
        assert process.returncode == 130
        assert "default/kept goes on; to follow it: trainyard logs -f kept; to end it:" in output
        assert "Running" in trainyard.run("list")
        assert trainyard.processes(_FOREVER)
        trainyard.run("delete", "kept", "--wait")
    finally:
        trainyard.run("down")


def test_kill_9_leaves_no_process_mount_or_bridge(
    trainyard: CommandLine,
) -> None:
    before = _traces()
    file = trainyard.manifest("m.yaml", job("doomed", shell(f"setsid {_FOREVER}"), replicas=3))
    with trainyard.running("run", "-f", file) as process:
        until(lambda: len(trainyard.processes(_FOREVER)) >= 3, "all replicas run")
        process.kill()
        until(lambda: not trainyard.processes(), "no process is left")
    assert _traces() == before


def _traces() -> tuple[set[str], set[str]]:
    """Network devices of the host and mounts that have to do with trainyard."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return set(os.listdir("/sys/class/net")), {line for line in mounts if "trainyard" in line}


def test_kill_9_of_a_replica_takes_its_tree_along_and_follows_the_restart_policy(
    trainyard: CommandLine,
) -> None:
    first = f"test -e once && exit 0; touch once; setsid {_FOREVER} & echo $$ ; wait"
    file = trainyard.manifest("m.yaml", job("shot", shell(first), policy="OnFailure"))
    with trainyard.running("run", "-f", file) as process:
        until(lambda: trainyard.processes(_FOREVER), "the replica runs")
        (shell_pid,) = (
            pid
            for pid in trainyard.processes("touch once")
            if b"trainyard" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(shell_pid, signal.SIGKILL)
        output = process.communicate(timeout=120)[0]
    assert process.returncode == 0, output
    assert "1 restart" in output
    assert not trainyard.processes()


@pytest.mark.parametrize("isolation", ["auto", "plain"])
def test_master_and_workers_find_each_other(trainyard: CommandLine, isolation: str) -> None:
    example = Path(__file__).parents[2] / "examples" / "plain-master-worker" / "job.yaml"
    output = trainyard.run("run", "-f", str(example), "--isolation", isolation)
    assert float(re.findall(r"\[master-0\] test accuracy (\S+)", output)[0]) > 0.9


def test_a_parameter_server_serves_four_workers(trainyard: CommandLine) -> None:
    example = Path(__file__).parents[2] / "examples" / "parameter-server" / "job.yaml"
    output = trainyard.run("run", "-f", str(example))
    assert float(re.findall(r"\[ps-0\] test accuracy (\S+)", output)[0]) > 0.9


def test_a_closed_pipe_ends_it_without_noise(trainyard: CommandLine) -> None:
    file = trainyard.manifest("m.yaml", job("talks", shell("yes | head -n 20000")))
    process = trainyard.start("run", "-f", file)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(120) != 0
    until(lambda: not trainyard.processes(), "no process is left")


def test_run_uses_the_cluster_that_is_up_and_leaves_no_job_there(trainyard: CommandLine) -> None:
    trainyard.run("up")
    try:
        file = trainyard.manifest("m.yaml", job("guest", shell("echo hi")))
        for _ in range(2):
            assert "[worker-0] hi" in trainyard.run("run", "-f", file)
        assert "guest" not in trainyard.run("list")
        trainyard.run("run", "-f", file, "--keep")
        assert "guest" in trainyard.run("list")
    finally:
        trainyard.run("down")
    assert not trainyard.processes()


def test_replicas_have_the_variables_that_were_passed_and_no_secrets(
    trainyard: CommandLine,
) -> None:
    secrets = {"SSH_AUTH_SOCK": "/run/agent", "HF_TOKEN": "hf", "WANDB_API_KEY": "wb"}
    trainyard.environment |= {**secrets, "NCCL_DEBUG": "INFO"}
    file = trainyard.manifest("m.yaml", job("env", ["env"]))
    said = trainyard.run("run", "-f", file)
    assert "NCCL_DEBUG=INFO" in said
    assert not [name for name in secrets if name in said]
    said = trainyard.run("run", "-f", file, "--pass-env", "HF_TOKEN,WANDB_*")
    assert "HF_TOKEN=hf" in said
    assert "WANDB_API_KEY=wb" in said
    assert "SSH_AUTH_SOCK" not in said
    assert "MISSING is not set here" in trainyard.run(
        "run", "-f", file, "--pass-env", "MISSING", code=2
    )
