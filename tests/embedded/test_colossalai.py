"""ColossalAIJob with the real `colossalai run` and sshd."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.deepspeed_job import SHOW, TRICKY
from tests.embedded.launching import (
    NAMESPACE,
    Jobs,
    Object,
    require_programs,
    resource_of,
    running_jobs,
    sshd_processes,
)
from trainyard.kube.errors import ApiError

KIND = "ColossalAIJob"


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[Jobs]:
    require_programs("colossalai", "torchrun", "sshd", "ssh")
    async with running_jobs(tmp_path) as running:
        yield running


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
    decoder = json.JSONDecoder()
    found = [decoder.raw_decode(part)[0] for part in text.split("SHOW ")[1:]]
    ranks = sorted(found, key=lambda rank: int(rank["RANK"]))
    assert [rank["RANK"] for rank in ranks] == ["0", "1", "2", "3"]
    assert len({rank["host"] for rank in ranks}) == 2
    assert {rank["LITERAL"] for rank in ranks} == {"worker"}
    assert {rank["TRICKY"] for rank in ranks} == {TRICKY}
    assert [rank["argv"] for rank in ranks] == [["x"]] * 4
    await jobs.until(KIND, "cj", lambda _: not sshd_processes(jobs))


async def launcher_of(jobs: Jobs) -> str:
    """The launcher's pod."""
    return next(name for name in await jobs.pods() if name.endswith("-launcher"))


async def test_a_failing_script_is_relaunched_up_to_the_limit(jobs: Jobs) -> None:
    """`limit: 1`: launched twice, launcher and workers together, then the job has failed."""
    jobs.script("fail.py", "import sys\nopen('launches', 'a').write('x')\nsys.exit(5)\n")
    await jobs.submit(KIND, "cj", spec(["fail.py"], limit=1))
    status = await jobs.fail(KIND, "cj")
    assert (jobs.folder / "launches").read_text() == "xx"
    assert len(status["attempts"]) == 2
    await jobs.until(KIND, "cj", lambda _: not sshd_processes(jobs))


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
