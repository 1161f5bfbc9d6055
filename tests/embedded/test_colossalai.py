"""ColossalAIJob with the real `colossalai run` and sshd."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.deepspeed_job import SHOW, TRICKY
from tests.embedded.launching import (
    NAMESPACE,
    Jobs,
    Object,
    jobs_with,
    require_programs,
    resource_of,
    running_jobs,
    sshd_processes,
)
from tests.tools import soak
from trainyard.kube.errors import ApiError
from trainyard.payloads.processes import children_of, descendants

KIND = "ColossalAIJob"


jobs = jobs_with("colossalai", "torchrun", "sshd", "ssh")


def template(name: str, env: dict[str, str] | None = None) -> Object:
    """A pod template with one container of this name."""
    variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
    return {"spec": {"containers": [{"name": name, "image": "image", "env": variables}]}}


def spec(script: list[str], *, workers: int = 1, limit: int = 0, **torch: Any) -> Object:
    """A ColossalAIJob's spec: the default launcher and workers of one container."""
    policy = {"policy": "OnFailure", "limit": limit}
    return {
        "torchConfig": {"script": script, **torch},
        "replicaSpecs": [
            {"type": "launcher", "restartPolicy": policy, "template": {}},
            {"type": "worker", "replicas": workers, "template": template("worker")},
        ],
    }


async def test_every_rank_sees_its_place_and_its_own_workers_environment(jobs: Jobs) -> None:
    """A launcher and two workers with two processes each; the launcher's values stay its own."""
    jobs.script("show.py", SHOW)
    extra = ["--max_restarts=3", "--rdzv_conf", "timeout=900,join_timeout=300"]
    job = spec(["show.py", "x"], workers=2, procPerWorker=2, extraArgs=extra)
    launcher, worker = job["replicaSpecs"]
    launcher["template"] = template("launcher", {"LITERAL": "launcher", "TRICKY": "no"})
    worker["template"] = template("worker", {"LITERAL": "worker", "TRICKY": TRICKY})
    await jobs.submit(KIND, "cj", job)
    await jobs.succeed(KIND, "cj")
    text = await jobs.log(await launcher_of(jobs))
    ranks = shown_in(text)
    assert [rank["RANK"] for rank in ranks] == ["0", "1", "2", "3"]
    assert len({rank["host"] for rank in ranks}) == 2
    assert {rank["LITERAL"] for rank in ranks} == {"worker"}
    assert {rank["TRICKY"] for rank in ranks} == {TRICKY}
    assert [rank["argv"] for rank in ranks] == [["x"]] * 4
    await jobs.until(KIND, "cj", lambda _: not sshd_processes(jobs))


def shown_in(log: str) -> list[Object]:
    """What the ranks of `SHOW` printed, by rank."""
    decoder = json.JSONDecoder()
    found = [decoder.raw_decode(part)[0] for part in log.split("SHOW ")[1:]]
    return sorted(found, key=lambda rank: int(rank["RANK"]))


async def launcher_of(jobs: Jobs) -> str:
    """The launcher's pod."""
    return next(name for name in await jobs.pods() if name.endswith("-launcher"))


BY_HAND = {
    "colossalai": "colossalai run --hostfile $TRAINYARD_HOSTFILE --nproc_per_node 2 "
    "--master_addr worker-0 show.py x",
    "torchrun": "n=0; for host in $(cat $TRAINYARD_HOSTFILE); do ssh $host cd $PWD '&&' torchrun "
    "--nnodes 2 --nproc_per_node 2 --node_rank $n --master_addr worker-0 show.py x & "
    'n=$((n + 1)); pids="$pids $!"; done; for pid in $pids; do wait $pid || exit; done',
}


@pytest.mark.parametrize("how", list(BY_HAND) if soak(0, 1) else ["colossalai"])
async def test_a_launch_of_the_users_own_replaces_ours_on_resume(jobs: Jobs, how: str) -> None:
    """`colossalai run` as one would type it, and torchrun on each host by ssh."""
    jobs.script("show.py", SHOW)
    job = spec(["none.py"], workers=2)
    job["replicaSpecs"][1]["template"] = template("worker", {"TRICKY": TRICKY})
    command = ["sh", "-c", BY_HAND[how]]
    resume = [{"type": "launcher", "command": command}]
    job["runMode"] = {"pause": {"enabled": True, "resumeSpecs": resume}}
    await jobs.submit(KIND, "cj", job)
    await jobs.until(KIND, "cj", lambda job: job.get("status", {}).get("phase") == "Paused")
    body = {"spec": {"runMode": {"pause": {"enabled": False}}}}
    await jobs.client.patch(resource_of(KIND), "cj", body, NAMESPACE)
    await jobs.succeed(KIND, "cj")
    text = await jobs.log(await launcher_of(jobs))
    ranks = shown_in(text)
    assert [rank["RANK"] for rank in ranks] == ["0", "1", "2", "3"]
    assert [rank["host"] for rank in ranks] == ["worker-0"] * 2 + ["worker-1"] * 2
    assert {rank["TRICKY"] for rank in ranks} == {TRICKY}
    assert [rank["argv"] for rank in ranks] == [["x"]] * 4


async def test_a_failing_script_is_relaunched_up_to_the_limit(jobs: Jobs) -> None:
    """`limit: 1`: launched twice, launcher and workers together, then the job has failed.

    The exit code is the rank's own, where torchrun's is 1 whatever the rank's.
    """
    jobs.script("fail.py", "import sys\nopen('launches', 'a').write('x')\nsys.exit(5)\n")
    await jobs.submit(KIND, "cj", spec(["fail.py"], limit=1))
    status = await jobs.fail(KIND, "cj")
    assert (jobs.folder / "launches").read_text() == "xx"
    assert len(status["attempts"]) == 2
    assert "failed with exit code 5" in await jobs.log(await launcher_of(jobs))
    await jobs.until(KIND, "cj", lambda _: not sshd_processes(jobs))


@pytest.mark.parametrize("host", [0, 1])
async def test_a_launch_that_loses_a_process_of_its_own_fails(jobs: Jobs, host: int) -> None:
    """Its parent would wait for its word, and the others for their next command, for ever."""
    jobs.script(
        "wait.py", "import os, time\nopen('begun-' + os.environ['RANK'], 'w')\ntime.sleep(9e9)"
    )
    await jobs.submit(KIND, "cj", spec(["wait.py"], workers=2))
    await jobs.until(
        KIND, "cj", lambda _: all((jobs.folder / f"begun-{i}").exists() for i in (0, 1))
    )
    os.kill(launching(jobs)[host], signal.SIGKILL)
    await jobs.fail(KIND, "cj")
    assert "a process of the launch was killed by signal 9" in await jobs.log(
        await launcher_of(jobs)
    )


def launching(jobs: Jobs) -> list[int]:
    """The processes of `colossalai run` that it has forked, one a host, in their order."""
    tree = children_of()
    programs = {}
    for pid in descendants(jobs.pod_runtime_pid, tree):
        with suppress(OSError):
            programs[pid] = Path("/proc", str(pid), "cmdline").read_bytes()
    ours = {pid for pid, line in programs.items() if b"/colossalai_run.py" in line}
    return sorted(each for pid in ours for each in tree.get(pid, ()) if each in ours)


async def test_workers_are_cleaned_up_and_the_launcher_keeps_its_log(jobs: Jobs) -> None:
    jobs.script("show.py", SHOW)
    job = spec(["show.py"])
    job["runPolicy"] = {"cleanUpWorkers": True}
    await jobs.submit(KIND, "cj", job)
    await jobs.succeed(KIND, "cj")
    launcher = await launcher_of(jobs)
    await jobs.until_pods(lambda pods: set(pods) == {launcher})
    assert "SHOW" in await jobs.log(launcher)


@pytest.mark.parametrize("script", [["train.sh"], ["torchrun", "x.py"]])
async def test_a_script_that_is_not_python_is_refused(jobs: Jobs, script: list[str]) -> None:
    """`colossalai run` would exit with 0 and run nothing."""
    with pytest.raises(ApiError, match=r"\.py"):
        await jobs.submit(KIND, "cj", spec(script))
    items, _ = await jobs.client.list(resource_of(KIND), NAMESPACE)
    assert items == []


async def test_a_missing_colossalai_is_named(jobs: Jobs) -> None:
    job = spec(["show.py"])
    path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    job["replicaSpecs"][0]["template"] = template("launcher", path)
    await jobs.submit(KIND, "cj", job)
    await jobs.fail(KIND, "cj")
    assert "launcher: colossalai not found" in await jobs.log(await launcher_of(jobs))


async def test_it_runs_without_namespaces(tmp_path: Path) -> None:
    """Plain processes: launcher and workers on loopback addresses of this machine."""
    require_programs("colossalai", "torchrun", "sshd", "ssh")
    async with running_jobs(tmp_path, isolation="plain") as jobs:
        jobs.script("show.py", SHOW)
        await jobs.submit(KIND, "cj", spec(["show.py"], workers=2))
        await jobs.succeed(KIND, "cj")
        assert (await jobs.logs()).count("SHOW {") == 2


async def test_the_example_learns(jobs: Jobs) -> None:
    await jobs.submit_example("colossalai-digits")
    await jobs.succeed(KIND, "digits")
    log = await jobs.log(await launcher_of(jobs))
    assert float(log.partition("test accuracy after: ")[2].split()[0]) > 0.9
