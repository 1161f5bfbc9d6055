"""What every container of a job's pods has in its environment, whatever the kind."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kinds.pods.jobs import job, replicas, workload
from tests.unit.kinds.pods.ssh_jobs import colossalai, deepspeed, template

from trainyard.kinds.shared.workload import ReplicaKey, Workload
from trainyard.payloads.launch.sshd_setup import session_environment

MANY = [
    {"name": "main", "image": "i", "args": ["x.py"]},
    {"name": "sidecar", "image": "i", "env": [{"name": "PYTHONUNBUFFERED", "value": ""}]},
]
SPEC = {**replicas(containers=MANY)}
SPEC["template"]["spec"]["initContainers"] = [{"name": "first", "image": "i"}]
KINDS = {
    "plain": lambda: workload(job("PyTorchTrainingJob", replicaSpecs=[SPEC])),
    "torchrun": lambda: workload(
        job("PyTorchTrainingJob", replicaSpecs=[SPEC], torchrunConfig={"enabled": True})
    ),
    "generic": lambda: workload(job("GenericJob", replicaSpecs=[SPEC])),
    "deepspeed": lambda: deepspeed(worker={"template": SPEC["template"]}),
    "colossalai": lambda: colossalai(
        specs=[{"type": "worker", "replicas": 1, "template": SPEC["template"]}]
    ),
}


def variables(described: Workload, key: ReplicaKey, attempt: int) -> dict[str, dict[str, Any]]:
    """By container, init containers among them."""
    spec = described.build_pod(key, attempt, pod_group="group", resumed=False)["spec"]
    return {
        each["name"]: {v["name"]: v.get("value") for v in each.get("env", ())}
        for each in (*spec.get("initContainers", ()), *spec["containers"])
    }


@pytest.mark.parametrize("kind", KINDS)
def test_python_holds_nothing_back_and_knows_its_attempt(kind: str) -> None:
    described = KINDS[kind]()
    for key in described.keys:
        found = variables(described, key, 3)
        assert {each["TRAINYARD_ATTEMPT"] for each in found.values()} == {"3"}
        sidecar = found.pop("sidecar", {"PYTHONUNBUFFERED": ""})
        assert sidecar["PYTHONUNBUFFERED"] == "", "what a manifest says holds"
        assert {each["PYTHONUNBUFFERED"] for each in found.values()} == {"1"}


def test_sessions_without_the_jobs_variables_have_them_all_the_same() -> None:
    """Here the user has set one of them, which is a variable of the job's, too."""
    described = deepspeed(
        worker={"template": template(env=[{"name": "PYTHONUNBUFFERED", "value": "x"}])},
        disableCustomEnv=True,
    )
    given = variables(described, ReplicaKey("worker", 0), 2)["worker"]
    pairs = [f"{name}={value}".encode() for name, value in given.items()]
    found = session_environment([*pairs, b"OTHER=1"], [*given, "OTHER"], disabled=True)
    assert sorted(found) == [b"PYTHONUNBUFFERED=x", b"TRAINYARD_ATTEMPT=2"]


def test_a_plain_rank_knows_torchruns_restart_count() -> None:
    """Which scripts read to tell a restart; torchrun itself says it to its own ranks."""
    found = variables(KINDS["plain"](), ReplicaKey("worker", 0), 3)
    assert found["main"]["TORCHELASTIC_RESTART_COUNT"] == "2"
