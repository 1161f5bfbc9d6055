"""How jobs tell the operators of a real cluster how they go, by real programs in their pods."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from tests.cluster.real_node import reporting
from tests.cluster.yard import Object, Yard, pytorch_job, until
from tests.tools import require

STEPS = 1_000_000
TRAINS = """
import os, sys, time
sys.path.insert(0, os.environ["TRAINYARD_PYTHON"])
import trainyard
assert trainyard.__file__.startswith("/t9k/")
folder, steps = sys.argv[1], 0
while os.environ["RANK"] == "1" and not os.path.exists(f"{folder}/end"):
    time.sleep(0.05)
if os.environ["RANK"] == "1":
    sys.exit()
saved = f"{folder}/checkpoint"
if os.path.exists(saved):
    steps = int(open(saved).read())
trainyard.report(step=steps, total=1_000_000)
while steps and not os.path.exists(f"{folder}/end"):
    time.sleep(0.05)
while not os.path.exists(f"{folder}/end"):
    time.sleep(0.05)
    steps += 1
    trainyard.report(step=steps, loss=1 / steps)
    if os.path.exists(f"{folder}/save"):
        with open(saved, "w") as file:
            file.write(str(steps))
        trainyard.report(step=steps, checkpoint=saved)
        os.rename(f"{folder}/save", f"{folder}/saved")
    if os.path.exists(f"{folder}/fail"):
        os.unlink(f"{folder}/fail")
        sys.exit(3)
"""


async def apply(yard: Yard, name: str, *words: str, **spec: object) -> None:
    """Have kubectl create a job whose replicas run Python."""
    made = pytorch_job(name, **spec)
    container = made["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]
    container["command"] = ["python3", *words]
    await yard.kubectl("apply", "-f", "-", stdin=json.dumps(made))


async def status_of(
    yard: Yard, accepts: Callable[[Object], object], name: str = "trains"
) -> Object:
    """The status of a job, once it is as wanted."""
    job = await until(
        lambda: yard.job(name), lambda job: job.get("status") and accepts(job["status"])
    )
    found: Object = job["status"]
    return found


def progress(status: Object) -> Object:
    """What was told; empty before."""
    found: Object = status.get("progress") or {}
    return found


def at_step(status: Object) -> int:
    """The last one told; -1 before."""
    return int(progress(status).get("step", -1))


def spent(status: Object) -> dict[str, float]:
    """Seconds by what they were spent on."""
    return {
        name: value for name, value in status["goodput"].items() if isinstance(value, int | float)
    }


async def test_progress_the_account_and_the_judge(yard: Yard, tmp_path: Path) -> None:
    (folder := tmp_path / "job").mkdir()
    async with reporting(yard, tmp_path / "node"):
        again = {"backoffLimit": 2}
        await apply(yard, "trains", "-c", TRAINS, str(folder), runPolicy=again)
        judges = {"backoffLimit": 5, "restartJudge": True}
        await apply(yard, "judged", "-c", "import nosuchmodule", replicas=1, runPolicy=judges)

        (folder / "save").touch()
        saved = await status_of(yard, lambda found: "checkpoint" in progress(found))
        kept = saved["progress"]["checkpoint"]["step"]
        await status_of(yard, lambda found: at_step(found) > kept)
        (folder / "fail").touch()
        await status_of(yard, lambda found: found.get("backoffCount") == 1)
        gone_on = await status_of(yard, lambda found: progress(found).get("step") == kept)
        assert gone_on["progress"]["totalSteps"] == STEPS
        (folder / "end").touch()
        ended = await yard.reaches("trains", "Succeeded")
        told = (await yard.reaches("judged", "Failed"))["status"]

    assert at_step(ended["status"]) >= kept
    parts = spent(ended["status"])
    assert all(parts[part] > 0 for part in ("starting", "training", "lost", "restarting"))
    created = datetime.fromisoformat(ended["metadata"]["creationTimestamp"])
    lasted = datetime.fromisoformat(ended["status"]["completionTime"]) - created
    assert abs(sum(parts.values()) - lasted.total_seconds()) < 1  # Kubernetes tells whole seconds

    assert [each["repeated"] for each in told["attempts"]] == [1, 2]
    failed = next(each for each in told["conditions"] if each["type"] == "Failed")
    assert failed["reason"] == "RestartsInVain"
    assert "'nosuchmodule' (<string>:1), with nothing gained in between" in failed["message"]


SUMMARIES = """
import os, sys, time
from torch.utils.tensorboard import SummaryWriter
writer, step = SummaryWriter("/data/log/run", flush_secs=1), 0
while not os.path.exists(sys.argv[1]):
    step += 1
    writer.add_scalar("loss", 1 / step, step)
    time.sleep(0.1)
"""


async def test_what_is_written_for_a_tensorboard_tells_how_far_a_job_is(
    yard: Yard, tmp_path: Path
) -> None:
    require("tensorboard")
    logs = {"logDir": {"pvc": [{"name": "data", "subPath": ["./log"]}]}}
    made = pytorch_job("writes", 1, tensorboardSpec=logs, runPolicy={"observe": True})
    pods = made["spec"]["replicaSpecs"][0]["template"]["spec"]
    pods["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    (container,) = pods["containers"]
    container["command"] = ["python3", "-c", SUMMARIES, str(tmp_path / "end")]
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    async with reporting(yard, tmp_path / "node"):
        await yard.kubectl("apply", "-f", "-", stdin=json.dumps(made))
        first = await status_of(yard, lambda found: at_step(found) > 0, "writes")
        later = await status_of(yard, lambda found: at_step(found) > at_step(first), "writes")
        (tmp_path / "end").touch()
        await yard.reaches("writes", "Succeeded")
    assert progress(later)["source"] == "TensorBoard"
    [loss] = progress(later)["metrics"]
    assert (loss["name"], 0 < float(loss["value"]) < 1) == ("loss", True)
