"""Whose log is shown: of replicas that were cleaned up, and beside init containers and sidecars."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.embedded.command_line import CommandLine, job, shell

INITIAL = [
    {"name": "prepare", "image": "x", "command": shell("echo from prepare; $PREPARE")},
    {
        "name": "proxy",
        "image": "x",
        "restartPolicy": "Always",
        "command": shell("echo from proxy; exec sleep 600"),
    },
]


@pytest.fixture
def trainyard(trainyard: CommandLine) -> CommandLine:
    trainyard.run("up")
    return trainyard


def with_initial(manifest: dict[str, Any], policy: str, prepare: str = "true") -> dict[str, Any]:
    """A job with an init container and a sidecar in its pods, and a clean-up policy."""
    [entry] = manifest["spec"]["replicaSpecs"]
    for container in INITIAL:
        each = {**container, "env": [{"name": "PREPARE", "value": prepare}]}
        entry["template"]["spec"].setdefault("initContainers", []).append(each)
    manifest["spec"]["runPolicy"] = {"cleanUpPolicy": policy, "backoffLimit": 0}
    return manifest


def test_the_training_is_shown_of_every_replica_and_an_init_container_where_it_failed(
    trainyard: CommandLine,
) -> None:
    """Decision 108, of pods that are there, are gone in part, and are all gone."""
    script = shell("echo from training $RANK; test $RANK = 0 || sleep 600")
    both = "[worker-0] from training 0\n[worker-1] from training 1\n"
    trainyard.run(
        "submit",
        "-f",
        trainyard.manifest(
            "m.yaml",
            with_initial(job("part", script, replicas=2), "Unfinished"),
            with_initial(job("whole", shell("echo from training $RANK"), replicas=2), "None"),
            with_initial(job("bad", script), "None", "exit 3"),
            with_initial(job("badly", script), "All", "exit 3"),
        ),
    )
    trainyard.run("wait", "part", "whole")
    trainyard.run("wait", "bad", code=1)
    trainyard.run("wait", "badly", code=1)
    for name in ("part", "whole"):
        assert trainyard.run("logs", name) == both
        assert "[worker-0] from prepare" in trainyard.run("logs", name, "-c", "prepare")
        assert "[worker-1] from proxy" in trainyard.run("logs", name, "-c", "proxy")
        assert trainyard.run("logs", name, "-r", "worker-1") == "from training 1\n"
        page = trainyard.run("show", name)
        assert not re.search(r"143(?! packages)", page)
        assert "Init:" not in trainyard.run("explain", name)
    for name in ("bad", "badly"):
        said = trainyard.run("logs", name)
        assert said.splitlines() == [
            "worker-0: init container prepare failed; this is its log",
            "from prepare",
        ]
        assert "worker-0's init container prepare failed" in trainyard.run("explain", name)
    said = trainyard.run("exec", "part", "-r", "worker-1", "true", code=1)
    assert "replica worker-1 of PyTorchTrainingJob default/part was deleted when the job" in said
    said = trainyard.run("logs", "part", "-r", "worker-7", code=1)
    assert "no replica worker-7; there are worker-0, worker-1" in said
    [item] = json.loads(trainyard.run("list", "pj", "-o", "json", "-l", "marked!=no"))["items"][:1]
    containers = item["status"]["tasks"][0]["replicas"][0]["containers"]
    assert [each.get("role") for each in containers] == ["Init", "Sidecar", None]


def test_a_manifest_may_come_through_a_pipe(trainyard: CommandLine) -> None:
    """It is read once, and its pods work where the user is."""
    file = trainyard.manifest("m.yaml", job("piped", shell("cat here; pwd")))
    (trainyard.folder / "here").write_text("is here\n")
    run = f"{sys.executable} -m trainyard.cli.main run -f"
    for given in (
        f"{run} <(cat {file})",
        f"{run} /dev/stdin < {file}",
        f"cat {file} | {run} -",
        f"mkfifo fifo; cat {file} > fifo & while ! test -p fifo; do :; done; {run} fifo",
    ):
        said = subprocess.run(
            ["bash", "-c", given],
            cwd=trainyard.folder,
            env=trainyard.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert said.returncode == 0, said
        assert "[worker-0] is here\n" in said.stdout
        assert f"[worker-0] {trainyard.folder}\n" in said.stdout
