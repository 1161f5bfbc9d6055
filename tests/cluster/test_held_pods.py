"""Pods of a real cluster that are checked before their start, and restart where they are, as long
as they get on: by the programs that are mounted into them.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path

from tests.cluster.real_node import channel, node
from tests.cluster.test_commands import trainyard
from tests.cluster.yard import Object, Yard, pytorch_job, until
from trainyard.kinds.shared import labels

LONG_SECONDS = 600
TRAINS = """
import os, sys, time
sys.path.insert(0, os.environ["TRAINYARD_PYTHON"])
import trainyard
folder = sys.argv[1]
def waits(name):
    while not os.path.exists(f"{folder}/{name}"):
        time.sleep(0.05)
if os.environ["RANK"] == "1":
    waits("end")
    sys.exit()
saved = f"{folder}/checkpoint"
step = 10 + (int(open(saved).read()) if os.path.exists(saved) else 0)
with open(saved, "w") as file:
    file.write(str(step))
trainyard.report(step=step, checkpoint=saved)
waits(f"go-on-{step}")
sys.exit(3 if step < 30 else 0)
"""
"""Each attempt makes ten steps, saves, and fails once it may, until the third has succeeded."""


def command(job: Object, *words: str) -> Object:
    """The same, with Python run in the replicas, and as long to end as a busy machine takes."""
    spec = job["spec"]["replicaSpecs"][0]["template"]["spec"]
    spec["containers"][0]["command"] = ["python3", *words]
    spec["terminationGracePeriodSeconds"] = LONG_SECONDS
    return job


def reached(job: Object) -> tuple[int, int]:
    """Its last checkpoint, and the restarts that count; -1 and 0 before."""
    status = job.get("status") or {}
    made = (status.get("progress") or {}).get("checkpoint") or {}
    return made.get("step", -1), status.get("backoffCount", 0)


async def test_pods_are_checked_and_restart_where_they_are_while_they_get_on(
    yard: Yard, tmp_path: Path
) -> None:
    (folder := tmp_path / "job").mkdir()
    policy = {"restartMode": "InPlace", "backoffLimit": 1, "backoffReset": "OnProgress"}
    stays = command(pytorch_job("stays", runPolicy=policy), "-c", TRAINS, str(folder))
    policy = {"nodeCheck": {"enabled": True}, "successPolicy": "AllReplicas"}
    checked = command(pytorch_job("checked", runPolicy=policy), "-c", "pass")
    async with AsyncExitStack() as stack:
        agent = await stack.enter_async_context(node(yard, tmp_path / "node"))
        options = await stack.enter_async_context(channel(yard, agent))
        options[0].append("--restart-delay-initial=200ms")
        operator = await stack.enter_async_context(yard.operator(*options[0]))
        await operator.leads()
        for job in (stays, checked):
            await yard.kubectl("apply", "-f", "-", stdin=json.dumps(job))
        uids = []
        for step in (10, 20, 30):
            await until(
                lambda: yard.job("stays"),
                lambda job, step=step: reached(job) == (step, 0),
                LONG_SECONDS,
            )
            uids.append({pod["metadata"]["uid"] for pod in await yard.pods("stays")})
            (folder / f"go-on-{step}").touch()
        ended = (await yard.reaches("stays", "Succeeded", seconds=LONG_SECONDS))["status"]
        await until(
            lambda: yard.pods("stays"),
            lambda pods: {p["metadata"]["annotations"][labels.ATTEMPT] for p in pods} == {"3"},
        )
        (folder / "end").touch()
        assert uids == [uids[0]] * 3
        assert [each.get("exitCode") for each in ended["attempts"]] == [3, 3, None]
        assert ended["tasks"][0]["restartCount"] == 4

        found = (await yard.reaches("checked", "Succeeded", seconds=LONG_SECONDS))["status"]
        assert found["nodeCheck"]["state"] == "Passed", found
        assert "all-reduce" in found["nodeCheck"]["message"]
        assert "have passed their check" in await trainyard(yard, "events", "checked")
