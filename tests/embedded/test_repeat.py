"""Runs that can be repeated: what is recorded of them, copies of their code, reruns, diffs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.embedded.command_line import CommandLine, Object

_TWICE = """\
import os, sys, time
print("this is edition 1", flush=True)
is_again = os.path.exists("mark")
open("mark", "w").close()
while not is_again and not os.path.exists("go"):
    time.sleep(0.05)
sys.exit(0 if is_again else 1)
"""


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def job(name: str, *command: str, restarts: int = 0) -> Object:
    container = {"name": "main", "image": "any", "command": list(command)}
    replica = {
        "type": "worker",
        "restartPolicy": {"policy": "OnFailure", "limit": restarts},
        "template": {"spec": {"containers": [container]}},
    }
    return {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": "GenericJob",
        "metadata": {"name": name},
        "spec": {"replicaSpecs": [replica]},
    }


def test_an_edited_script_does_not_reach_a_job_that_restarts(trainyard: CommandLine) -> None:
    folder = trainyard.folder
    (folder / ".gitignore").write_text("state/\n")
    (folder / "step.py").write_text(_TWICE)
    manifest = trainyard.manifest("job.yaml", job("twice", "python", "step.py", restarts=1))
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    trainyard.run("up")
    assert f"a copy of {folder}, in {trainyard.state}" in trainyard.run(
        "submit", "--snapshot", "-f", manifest
    )
    trainyard.run("wait", "twice", "--for", "phase=Running")
    script = (folder / "step.py").read_text()
    (folder / "step.py").write_text(script.replace("edition 1", "edition 2"))
    trainyard.run("exec", "twice", "--", "touch", "go", code=None)  # its pod ends with it
    trainyard.run("wait", "twice")
    assert "edition 1" in trainyard.run("logs", "--previous", "twice")
    assert "edition 1" in trainyard.run("logs", "twice")
    assert not (folder / "mark").exists()
    shown = trainyard.run("show", "twice")
    assert f"a copy of {folder}, made when it was submitted" in shown
    assert "Command:      trainyard submit --snapshot -f" in shown
    told = json.loads(next(trainyard.state.glob("submissions/*/record.json")).read_text())
    assert told["snapshot"].startswith("3 files")


_SHOWS = """\
import os
print("edition 1 of", os.environ["LR"], len(os.environ.get("API_TOKEN", "")), flush=True)
"""


def test_a_run_is_had_again_after_it_is_gone(trainyard: CommandLine) -> None:
    """With the code and the secrets of then, or with changes; and the two are compared."""
    folder = trainyard.folder
    (folder / "train.py").write_text(_SHOWS)
    trainyard.run("run", "--snapshot", "--env", "LR=0.1", "--env", "API_TOKEN=hunter2", "train.py")
    (folder / "train.py").write_text(_SHOWS.replace("edition 1", "edition 2"))
    written = [p for p in trainyard.state.rglob("*") if p.is_file() and "pods" not in p.parts]
    assert not any(b"hunter2" in path.read_bytes() for path in written)
    refused = trainyard.run("rerun", "train", code=1)
    assert "env[1].value (API_TOKEN) of train looked like a secret" in refused
    trainyard.environment["API_TOKEN"] = "other"
    place = "spec.replicaSpecs[0].template.spec.containers[0].env[0]"
    output = trainyard.run("rerun", "train", "--set", f"{place}.value='0.2'")
    assert "edition 1 of 0.2 5" in output
    assert "PyTorchTrainingJob train-2: Succeeded" in output
    found = json.loads(trainyard.run("diff", "train", "train-2", "-o", "json"))
    assert {each["path"]: each["b"] for each in found["spec"]} == {f"{place}.value": "0.2"}
    assert found["packages"] == {}
    assert found["code"] is None
    assert [found["results"][each]["phase"] for each in "ab"] == ["Succeeded"] * 2
    listed = trainyard.run("history").splitlines()
    assert [line.split()[1] for line in listed] == ["JOB", "train-2", "train"]
    assert "API_TOKEN=***" in listed[-1]


def test_a_run_that_is_gone_takes_the_variables_of_the_shell_from_there_again(
    trainyard: CommandLine,
) -> None:
    """No file has them, nor does the record."""
    (trainyard.folder / "say.sh").write_text('echo "the word is $WORD"\n')
    trainyard.environment["WORD"] = "hunter2"
    assert "the word is hunter2" in trainyard.run("run", "--env", "WORD", "say.sh")
    written = [p for p in trainyard.state.rglob("*") if p.is_file() and "pods" not in p.parts]
    assert not any(b"hunter2" in path.read_bytes() for path in written)
    del trainyard.environment["WORD"]
    refused = trainyard.run("rerun", "say", code=1)
    assert "error: set WORD in this shell: Secret say-2-env takes its values from" in refused
    trainyard.environment["WORD"] = "hunter3"
    assert "the word is hunter3" in trainyard.run("rerun", "say")
    assert json.loads(trainyard.run("diff", "say", "say-2", "-o", "json"))["spec"] == []
