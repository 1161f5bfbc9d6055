"""DeepSpeedJob when something goes wrong: exit codes, restarts, missing programs, late sshd."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.embedded.deepspeed_job import KIND, SHOW, TRAIN, launches, shown, spec, worker
from tests.embedded.launching import (
    NAMESPACE,
    Jobs,
    Object,
    jobs_with,
    message_of,
    resource_of,
    sshd_processes,
)
from tests.tools import require, soak
from trainyard.kube.resources import CONFIG_MAPS
from trainyard.payloads.processes import children_of, descendants

LATE_SECONDS = soak(4, 20)
"""The launch starts this soon after the last sshd answers."""
LATE_SSHD = f"""\
#!/bin/sh
case $(hostname) in *-1) sleep {LATE_SECONDS};; esac
date +%s.%N > {{folder}}/served-$(hostname)
exec {{folder}}/sshd "$@"
"""
TIMED_DEEPSPEED = """\
#!/bin/sh
date +%s.%N > {folder}/launched
exec {deepspeed} "$@"
"""
FAIL_ONCE = """\
import os, pathlib, sys
if os.environ["RANK"] == "1" and not pathlib.Path("failed").exists():
    pathlib.Path("failed").touch()
    {failure}
"""


jobs = jobs_with("deepspeed", "pdsh", "sshd", "ssh")


def exit_codes(status: Object) -> list[int]:
    """Of the training containers, by worker."""
    replicas = status["tasks"][0]["replicas"]
    return [replica["containers"][0].get("exitCode") for replica in replicas]


async def test_an_unknown_script_fails_the_job_with_the_last_lines(jobs: Jobs) -> None:
    await jobs.submit(KIND, "dj", spec({"python": ["nowhere.py"]}))
    status = await jobs.fail(KIND, "dj")
    assert exit_codes(status)[0] == 2
    pods = await jobs.pods()
    first = pods[min(pods)]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert "failed with exit code 2" in first["message"]
    assert "nowhere.py" in await jobs.logs()
    await jobs.until(KIND, "dj", lambda _: not sshd_processes(jobs))


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        pytest.param("os._exit(138)", 138, id="exit 138"),
        pytest.param("os.kill(os.getpid(), 9)", 137, id="SIGKILL"),
    ],
)
async def test_a_restartable_code_of_a_rank_restarts_the_job(
    jobs: Jobs, failure: str, code: int
) -> None:
    """Under ExitCode; deepspeed itself would have made 247 of the SIGKILL."""
    jobs.script("fail.py", FAIL_ONCE.format(failure=failure))
    job = spec({"python": ["fail.py"]}, restart_policy="ExitCode")
    await jobs.submit(KIND, "dj", job)
    status = await jobs.succeed(KIND, "dj")
    assert [attempt.get("exitCode") for attempt in status["attempts"]] == [code, None]
    assert status["backoffCount"] == 1


async def test_another_code_of_a_rank_is_final_under_exit_code(jobs: Jobs) -> None:
    jobs.script("fail.py", FAIL_ONCE.format(failure="sys.exit(3)"))
    job = spec({"python": ["fail.py"]}, restart_policy="ExitCode")
    await jobs.submit(KIND, "dj", job)
    status = await jobs.fail(KIND, "dj")
    assert exit_codes(status)[0] == 3
    assert status["backoffCount"] == 0


async def test_ranks_that_hang_after_a_failure_are_ended(jobs: Jobs) -> None:
    """A rank on another worker waits for the failed one for ever; the launch does not."""
    script = (
        "import os, sys, time\nif os.environ['RANK'] == '1':\n    sys.exit(7)\ntime.sleep(3600)"
    )
    jobs.script("hang.py", script)
    await jobs.submit(KIND, "dj", spec({"python": ["hang.py"]}))
    assert exit_codes(await jobs.fail(KIND, "dj"))[0] == 7


async def test_a_killed_worker_is_one_incident_and_training_goes_on(jobs: Jobs) -> None:
    """worker-1 killed as a whole while training: one restart, from the checkpoint."""
    jobs.script("train.py", TRAIN)
    job = spec({"python": ["train.py", "60"]}, restart_policy="OnFailure")
    await jobs.submit(KIND, "dj", job)
    await jobs.until(KIND, "dj", lambda _: checkpoint(jobs) >= 5)
    kill_worker(jobs, "worker-1")
    status = await jobs.succeed(KIND, "dj")
    assert status["backoffCount"] == 1
    (world, first), (world_again, resumed) = launches(jobs)
    assert (world, first, world_again) == (2, 0, 2)
    assert resumed >= 5


async def test_a_pause_ends_everything_and_a_resume_goes_on(jobs: Jobs) -> None:
    """No pod and no sshd while paused; then a new launch, from the checkpoint, free of charge."""
    jobs.script("train.py", TRAIN)
    await jobs.submit(KIND, "dj", spec({"python": ["train.py", "1000000"]}))
    await jobs.until(KIND, "dj", lambda _: checkpoint(jobs) >= 5)
    await pause(jobs, True)
    await jobs.until_pods(lambda pods: not pods)
    assert sshd_processes(jobs) == []
    await pause(jobs, False)
    await jobs.until(KIND, "dj", lambda _: len(launches(jobs)) == 2)
    assert launches(jobs)[1][1] >= 5
    assert (await jobs.job(KIND, "dj"))["status"]["backoffCount"] == 0


async def pause(jobs: Jobs, enabled: bool) -> None:
    """Turn pause mode on or off."""
    body = {"spec": {"runMode": {"pause": {"enabled": enabled}}}}
    await jobs.client.patch(resource_of(KIND), "dj", body, NAMESPACE)


def checkpoint(jobs: Jobs) -> int:
    """The last step that was saved."""
    path = jobs.folder / "checkpoint"
    return int(path.read_text()) if path.exists() else 0


def kill_worker(jobs: Jobs, suffix: str) -> None:
    """SIGKILL to the first process of the worker whose pod name ends so."""
    for pid in descendants(jobs.pod_runtime_pid, children_of()):
        command = Path("/proc", str(pid), "cmdline").read_bytes()
        environment = Path("/proc", str(pid), "environ").read_bytes()
        if b"/supervise.py" in command and f"{suffix}\0".encode() in environment:
            os.kill(pid, signal.SIGKILL)
            return
    raise AssertionError(f"no process of {suffix}")


async def test_a_late_sshd_costs_nothing_but_the_wait(jobs: Jobs) -> None:
    """worker-1's sshd comes late; `deepspeed` is started after it, and only once."""
    jobs.script("show.py", SHOW)
    await jobs.submit(KIND, "dj", spec({"python": ["show.py"]}, template=await late_sshd(jobs)))
    status = await jobs.succeed(KIND, "dj")
    assert len(await shown(jobs)) == 2
    assert status["backoffCount"] == 0
    # Taken just before sshd itself starts, so a little before it answers.
    served = [moment(jobs, f"served-{host}") for host in ("worker-0", "worker-1")]
    assert served[1] - served[0] >= LATE_SECONDS - 1
    assert moment(jobs, "launched") > served[1]


async def late_sshd(jobs: Jobs) -> Object:
    """A worker's template whose sshd is late on worker-1; sshd and deepspeed note their starts."""
    folder = jobs.folder
    shutil.copy("/usr/sbin/sshd", folder / "sshd")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}}
    body["data"] = {"sshd": LATE_SSHD.format(folder=folder)}
    await jobs.client.create(CONFIG_MAPS, body, NAMESPACE)
    beside = Path(sys.executable).parent
    (folder / "bin").mkdir()
    timed = folder / "bin" / "deepspeed"
    timed.write_text(TIMED_DEEPSPEED.format(folder=folder, deepspeed=beside / "deepspeed"))
    timed.chmod(0o755)
    path = os.pathsep.join([str(timed.parent), str(beside), os.environ["PATH"]])
    mount = {"name": "late", "mountPath": "/usr/sbin/sshd", "subPath": "sshd"}
    template = worker(env=[{"name": "PATH", "value": path}], volumeMounts=[mount])
    volume = {"name": "late", "configMap": {"name": "late", "defaultMode": 0o755}}
    template["spec"]["volumes"] = [volume]
    return template


def moment(jobs: Jobs, name: str) -> float:
    """Unix time that a program noted."""
    return float((jobs.folder / name).read_text())


@pytest.mark.parametrize("program", ["deepspeed", "pdsh", "ssh"])
async def test_a_missing_program_of_the_launch_is_named(jobs: Jobs, program: str) -> None:
    """The launching replica says which program its image lacks."""
    folder = jobs.folder / "programs"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)  # the first on PATH may be a script
    for name in {"deepspeed", "pdsh", "ssh", "env"} - {program}:
        (folder / name).symlink_to(require(name))
    template = worker(env=[{"name": "PATH", "value": str(folder)}])
    await jobs.submit(KIND, "dj", spec({"python": ["x.py"]}, template=template))
    await jobs.fail(KIND, "dj")
    assert f"worker-0: {program} not found" in await jobs.logs()


async def test_a_missing_sshd_is_named(jobs: Jobs) -> None:
    """The job fails with a message that says what is missing, and on which replica."""
    template = worker(volumeMounts=[{"name": "nothing", "mountPath": "/usr/sbin"}])
    template["spec"]["volumes"] = [{"name": "nothing", "emptyDir": {}}]
    job = spec({"python": ["x.py"]}, replicas=1, template=template)
    await jobs.submit(KIND, "dj", job)
    status = await jobs.fail(KIND, "dj")
    assert "worker-0" in message_of(status)
    assert "worker-0: sshd not found: /usr/sbin/sshd" in await jobs.logs()
    pods = await jobs.pods()
    terminated = pods[min(pods)]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert "sshd not found" in terminated["message"]
