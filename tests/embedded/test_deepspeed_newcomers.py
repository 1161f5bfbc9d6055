"""A newcomer of an elastic DeepSpeedJob that fails, under the real deepspeed: nobody else pays.

The script does without torch, which would only cost time.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.embedded.deepspeed_job import KIND, spec
from tests.embedded.launching import (
    NAMESPACE,
    Jobs,
    Object,
    require_programs,
    resource_of,
    running_jobs,
)

IS_SOAK = os.environ.get("TRAINYARD_SOAK") == "1"

SCRIPT = """\
import os, pathlib, socket, sys, time
folder, code, first = pathlib.Path(sys.argv[-3]), int(sys.argv[-2]), int(sys.argv[-1])
folder.mkdir(exist_ok=True)
with open(folder / "starts", "a") as file:
    file.write(os.environ["RANK"] + " " + os.environ["WORLD_SIZE"] + "\\n")
if int(socket.gethostname().rpartition("-")[2]) >= first:
    sys.exit(code)
while not (folder / "enough").exists():
    time.sleep(0.1)
"""


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[Jobs]:
    require_programs("deepspeed", "pdsh", "sshd", "ssh")
    async with running_jobs(tmp_path) as running:
        running.script("train.py", SCRIPT)
        yield running


def _job(name: str, policy: str, code: int, first: int) -> Object:
    """One worker less than the first that fails, and a budget of one restart."""
    elastic = {"enabled": True, "minReplicas": 1, "maxReplicas": 4, "expectedReplicas": first}
    return spec(
        {"python": ["train.py", name, str(code), str(first)]},
        restart_policy=policy,
        runPolicy={"backoffLimit": 1},
        elastic=elastic,
    )


async def _until_world(jobs: Jobs, name: str, size: int) -> None:
    """Wait until the last launch is one of this size."""
    path, wanted = jobs.folder / name / "starts", sorted(f"{rank} {size}" for rank in range(size))

    def holds(_: Object) -> bool:
        return path.exists() and sorted(path.read_text().splitlines()[-size:]) == wanted

    await jobs.until(KIND, name, holds)


async def _uids(jobs: Jobs, name: str) -> dict[str, str]:
    """Of the job's pods, by replica."""
    pods = (await jobs.pods()).items()
    return {
        pod.partition("-worker-")[2]: it["metadata"]["uid"]
        for pod, it in pods
        if pod.startswith(f"{name}-")
    }


async def test_a_newcomer_that_fails_pays_alone_and_the_others_keep_their_pods(jobs: Jobs) -> None:
    """Under Never, OnFailure and ExitCode with a budget of 1, and where one alone was before."""
    kinds = {"never": ("Never", 1, 2)}
    if IS_SOAK:
        kinds["once"] = ("OnFailure", 1, 2)
        kinds["code"] = ("ExitCode", 137, 2)
        kinds["alone"] = ("Never", 1, 1)
    spent = {"never": 0, "once": 1, "code": 1, "alone": 0}
    for name, how in kinds.items():
        await jobs.submit(KIND, name, _job(name, *how))
    before = {}
    for name, (_, _, size) in kinds.items():
        await _until_world(jobs, name, size)
        before[name] = await _uids(jobs, name)
        grown = {"spec": {"elastic": {"expectedReplicas": size + 1}}}
        await jobs.client.patch(resource_of(KIND), name, grown, NAMESPACE)
    for name, (_, code, size) in kinds.items():
        job = await jobs.until(KIND, name, lambda job: job["status"]["aggregate"]["failed"] == 1)
        await _until_world(jobs, name, size)
        status, uids = job["status"], await _uids(jobs, name)
        story = await jobs.story(KIND, name)
        stay = [str(number) for number in range(1, size)]
        assert [uids[each] for each in stay] == [before[name][each] for each in stay], story
        assert status["phase"] == "Running", story
        assert status["backoffCount"] == status["tasks"][0]["restartCount"] == spent[name], story
        ends = [(end.get("replica", "")[-8:], end.get("exitCode")) for end in status["attempts"]]
        worker = f"worker-{size}"
        assert ends == [("", None)] + [(worker, code)] * spent[name] + [("", None)], story
        told = next(c for c in status["conditions"] if c["type"] == "ReplicaFailure")
        assert f"{worker}] exited with error code {code}" in told["message"], story
        (jobs.folder / name / "enough").touch()
        await jobs.succeed(KIND, name)
