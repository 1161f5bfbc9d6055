"""The launch that debug mode replaced, as `show` tells it, pasted into a shell (decision 109)."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.embedded.command_line import PATIENCE_SECONDS, CommandLine
from tests.tools import require, soak

PROGRAM = """
import os, sys
print("rank", os.environ.get("RANK"), "of", os.environ.get("WORLD_SIZE"), sys.argv[-1], flush=True)
"""


@pytest.fixture
def trainyard(trainyard: CommandLine) -> CommandLine:
    trainyard.run("up")
    return trainyard


def debugged(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch.tensorstack.dev/v1beta1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {**spec, "runMode": {"debug": {"enabled": True}}},
    }


def template(name: str, **container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "image": "x", **container}]}}


PLAIN = ["python3", "program.py", "it's $(RANK), $$5"]
JOBS = {
    "plain": debugged(
        "PyTorchTrainingJob",
        "plain",
        replicaSpecs=[
            {"type": "worker", "replicas": 2, "template": template("pytorch", command=PLAIN)}
        ],
    ),
    "torch": debugged(
        "PyTorchTrainingJob",
        "torch",
        torchrunConfig={"enabled": True, "procPerNode": "2"},
        replicaSpecs=[
            {
                "type": "worker",
                "replicas": 1,
                "template": template("pytorch", args=["program.py", "a b"]),
            }
        ],
    ),
    "generic": debugged(
        "GenericJob",
        "generic",
        replicaSpecs=[
            {
                "type": "solver",
                "replicas": 1,
                "template": template("main", command=["python3", "program.py", "$(type) $(rank)"]),
            }
        ],
    ),
    "deepspeed": debugged(
        "DeepSpeedJob",
        "deepspeed",
        config={"slotsPerWorker": 1, "run": {"python": ["program.py", "a b"]}},
        worker={"replicas": 2, "template": template("worker")},
    ),
    "colossal": debugged(
        "ColossalAIJob",
        "colossal",
        torchConfig={"procPerWorker": 1, "script": ["program.py", "ab"]},
        replicaSpecs=[{"type": "worker", "replicas": 2, "template": template("worker")}],
    ),
}
LINES = [
    ("plain", "worker-1", "rank 1 of 2 it's 1, $5"),
    ("generic", "solver-0", "rank None of None solver 0"),
    ("deepspeed", "worker-0", "worker-1: rank 1 of 2 a b"),
    ("torch", "worker-0", "rank 1 of 2 a b"),
    ("colossal", "launcher", "rank 1 of 2 ab"),
]


def shown(trainyard: CommandLine, name: str, replica: str) -> str:
    """The line of a replica."""
    launch = trainyard.run("show", name).partition("\nLaunch, for")[2]
    return launch.partition(f"\n# {replica}, container ")[2].partition("\n")[2].partition("\n# ")[0]


def test_the_line_of_a_job_in_debug_mode_starts_the_training(trainyard: CommandLine) -> None:
    for tool in ("ssh", "pdsh"):
        require(tool)
    (trainyard.folder / "program.py").write_text(PROGRAM)
    trainyard.run("submit", "-f", trainyard.manifest("m.yaml", *JOBS.values()))
    for name, replica, expected in LINES[: soak(3, 5)]:
        trainyard.run("wait", name, "--for", "condition=Running")
        said = subprocess.run(
            [*(sys.executable, "-m", "trainyard.cli.main"), "exec", name, "-r", replica, "sh"],
            input=shown(trainyard, name, replica) + "\n",
            env=trainyard.environment,
            cwd=trainyard.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert expected in said.stdout, said
        assert said.returncode == 0
    assert shown(trainyard, "torch", "worker-0").startswith("torchrun --nnodes 1 ")
    assert shown(trainyard, "colossal", "launcher").startswith("colossalai run --nproc_per_node 1 ")
