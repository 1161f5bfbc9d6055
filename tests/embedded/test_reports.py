"""Replicas that report to the embedded cluster's controller, and what a user sees of it."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.embedded.command_line import CommandLine, job, until

TRAIN = """
import os, time, trainyard
trainyard.report(step=100, total=1000, loss=0.25, checkpoint="/out/100.pt")
print("told", flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
    trainyard.report(step=200)
trainyard.report(step=1000)
"""


def _progress(line: CommandLine, name: str) -> dict[str, Any]:
    shown = json.loads(line.run("show", name, "-o", "json"))
    found: dict[str, Any] = shown.get("status", {}).get("progress") or {}
    return found


def _submit(line: CommandLine) -> None:
    (line.folder / "train.py").write_text(TRAIN)
    file = line.manifest("m.yaml", job("digits", ["python", "train.py"], replicas=2))
    line.run("submit", "-f", file)


def test_progress_is_shown_and_goes_on_after_the_controller_was_killed(
    trainyard: CommandLine,
) -> None:
    trainyard.run("up")
    _submit(trainyard)
    until(lambda: _progress(trainyard, "digits").get("step") == 200, "progress")
    assert "step 200/1,000" in trainyard.run("list")
    shown = trainyard.run("show", "digits")
    assert "step 200/1,000" in shown
    assert "loss 0.25" in shown
    assert "/out/100.pt of step 100" in shown
    pid = json.loads((trainyard.state / "cluster.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    trainyard.run("up")
    assert _progress(trainyard, "digits")["checkpoint"]["path"] == "/out/100.pt"
    (trainyard.folder / "go").touch()
    trainyard.run("wait", "digits")
    until(lambda: _progress(trainyard, "digits").get("step") == 1000, "the last word")
    assert _progress(trainyard, "digits")["message"] == "step 1,000/1,000"


@pytest.mark.parametrize("isolation", ["namespaces", "plain"])
def test_reports_need_no_namespaces(isolation: str, trainyard: CommandLine) -> None:
    trainyard.run("up", "--isolation", isolation)
    (trainyard.folder / "go").touch()
    _submit(trainyard)
    trainyard.run("wait", "digits")
    assert _progress(trainyard, "digits")["step"] == 1000


OWN = """
import os
print("own", os.environ["KUBEFLOW_TRAINER_SERVER_URL"], os.path.exists("/t9k/channel/token"))
"""


def test_a_users_own_values_win(trainyard: CommandLine) -> None:
    (trainyard.folder / "own.py").write_text(OWN)
    made = job("own", ["python", "own.py"])
    (container,) = made["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"]
    container["env"] = [{"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": "https://mine"}]
    assert "own https://mine" in trainyard.run("run", "-f", trainyard.manifest("m.yaml", made))


BARE = """
import os, sys
sys.path.append(os.environ.get("TRAINYARD_PYTHON", ""))
import trainyard
assert not hasattr(trainyard, "Client"), "another than what is mounted"
trainyard.report(step=7, total=7)
"""


@pytest.mark.parametrize("isolation", ["namespaces", "plain"])
def test_a_python_without_trainyard_reports_by_what_is_mounted(
    isolation: str, trainyard: CommandLine
) -> None:
    trainyard.run("up", "--isolation", isolation)
    (trainyard.folder / "bare.py").write_text(BARE)
    # Without site-packages, and without a PYTHONPATH of this test.
    by_script = job("by-script", ["python", "-ES", "bare.py"])
    by_path = job("by-path", ["python", "-S", "bare.py"])
    (container,) = by_path["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"]
    container["env"] = [{"name": "PYTHONPATH", "value": "/opt/image:$(TRAINYARD_PYTHON)"}]
    trainyard.run("submit", "-f", trainyard.manifest("m.yaml", by_script, by_path))
    for name in ("by-script", "by-path"):
        trainyard.run("wait", name)
        assert _progress(trainyard, name)["message"] == "step 7/7"


def test_an_installed_trainyard_goes_before_what_is_mounted(trainyard: CommandLine) -> None:
    (trainyard.folder / "bare.py").write_text(BARE.replace("not hasattr", "hasattr"))
    out = trainyard.run("run", "-f", trainyard.manifest("m.yaml", job("j", ["python", "bare.py"])))
    assert "Succeeded" in out
