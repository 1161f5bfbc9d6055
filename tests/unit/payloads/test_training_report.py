"""`trainyard.report`, as a training script has it: what is sent, and that it harms nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import trainyard
from tests.unit.operator.test_report_channel import PATH, ServedChannel, served
from trainyard.operator.channel.channel_ca import CA

WAIT_SECONDS = 120.0


async def train(script: str, channel: ServedChannel, folder: Path, **more: str) -> tuple[int, str]:
    """Exit code and all output of a script whose job has that channel."""
    (folder / "ca.crt").write_text(channel.ca.files[CA])
    (folder / "token").write_text(channel.ca.token("uid-a") + "\n")
    host, port = channel.address
    environment = {
        **os.environ,
        "KUBEFLOW_TRAINER_SERVER_URL": f"https://{host}:{port}{PATH.format('a', 'a-0')}",
        "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(folder / "ca.crt"),
        "KUBEFLOW_TRAINER_SERVER_TOKEN": str(folder / "token"),
        **more,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"import trainyard\n{script}"),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(WAIT_SECONDS):
        out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def test_the_last_word_is_sent_with_all_that_was_said(tmp_path: Path) -> None:
    script = """
for step in range(100):
    trainyard.report(step=step, total=100, loss=step / 2, checkpoint="/c" if step == 98 else None)
trainyard.report(phase="done")
"""
    async with served() as channel:
        assert await train(script, channel, tmp_path) == (0, "")
        assert len(channel.controller.received) < 10, "the newest only"
        uid, pod, body = channel.controller.received[-1]
        assert (uid, pod) == ("uid-a", "a-0")
        status = [each["trainerStatus"] for _, _, each in map(tuple, channel.controller.received)]
        named = {each["name"]: each["value"] for each in body["trainerStatus"]["metrics"]}
        wanted = {"current_step": "99", "total_steps": "100", "loss": "49.5", "phase": "done"}
        assert named == wanted
        assert {"path": "/c", "step": 98} in [each.get("checkpoint") for each in status]


LAST = """
import os, sys, time
import trainyard.payloads.training_report
report_module = sys.modules["trainyard.payloads.training_report"]
report_module._LAST_SECONDS = 100.0  # however slow the machine is
trainyard.report(step=1, checkpoint="/c")
while not os.path.exists("go"):
    time.sleep(0.01)
trainyard.report(step=2)
"""


@pytest.mark.parametrize("is_late", [False, True])
async def test_the_last_word_reaches_the_next_controller(tmp_path: Path, is_late: bool) -> None:
    script = f"import os\nos.chdir({str(tmp_path)!r})\n{LAST}"
    async with served() as channel:
        training = asyncio.create_task(train(script, channel, tmp_path))
        async with asyncio.timeout(WAIT_SECONDS):
            while not channel.controller.received:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    # The connection that the script has kept is dead now.
    if is_late:
        (tmp_path / "go").touch()
        await asyncio.sleep(0.5)
    async with served(channel.ca, channel.address[1]) as following:
        (tmp_path / "go").touch()
        assert await training == (0, "")
        metrics = following.controller.received[-1][2]["trainerStatus"]["metrics"]
    assert {"name": "current_step", "value": "2"} in metrics


async def test_other_ranks_say_nothing(tmp_path: Path) -> None:
    async with served() as channel:
        assert await train("trainyard.report(step=1)", channel, tmp_path, RANK="1") == (0, "")
        assert not channel.controller.received


async def test_a_controller_that_refuses_harms_nothing(tmp_path: Path) -> None:
    async with served() as channel:
        channel.controller.is_working = False
        assert await train("trainyard.report(step=1)", channel, tmp_path) == (0, "")
        nobody = {"KUBEFLOW_TRAINER_SERVER_URL": "https://127.0.0.1:9/x"}
        assert await train("trainyard.report(step=1)", channel, tmp_path, **nobody) == (0, "")
        none = {"KUBEFLOW_TRAINER_SERVER_TOKEN": str(tmp_path / "missing")}
        assert await train("trainyard.report(step=1)", channel, tmp_path, **none) == (0, "")


async def test_a_fork_after_a_report_goes_on(tmp_path: Path) -> None:
    script = """
import os
trainyard.report(step=1)
for _ in range(50):
    if not (child := os.fork()):
        trainyard.report(step=2)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
    async with served() as channel:
        code, said = await train(script, channel, tmp_path)
        assert code == 0, said
        assert channel.controller.received


def test_outside_of_a_job_nothing_is_even_imported() -> None:
    script = """
import sys, trainyard
trainyard.report(step=1, total=2, loss=0.5, checkpoint="x")
print(sorted({"ssl", "json", "threading", "http.client", "trainyard.api"} & set(sys.modules)))
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KUBEFLOW")}
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={**environment, "PYTHONPATH": str(Path(trainyard.__file__).parent.parent)},
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS,
    )
    assert done.stdout == "[]\n"


def test_a_mistake_shows_outside_of_a_job_too() -> None:
    with pytest.raises(ValueError, match="x"):
        trainyard.report(step="x")  # type: ignore[arg-type]
