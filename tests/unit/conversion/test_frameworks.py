"""TFJob, JAXJob and XGBoostJob: their pods get what the training operator tells them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.conversion.kubeflow import JAX, TF, XGBOOST
from tests.unit.conversion.test_foreign import converted
from trainyard.conversion.foreign_conversion import convert
from trainyard.schema.errors import InvalidManifest


def variables(entry: dict[str, Any], container: int = 0) -> dict[str, str]:
    env = entry["template"]["spec"]["containers"][container].get("env", [])
    return {each["name"]: each["value"] for each in env}


def by_type(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["type"]: entry for entry in job["spec"]["replicaSpecs"]}


def test_a_tfjob_says_to_each_replica_who_it_is_and_where_the_others_are() -> None:
    job, told = converted(TF)
    assert job["kind"] == "GenericJob"
    entries = by_type(job)
    assert [*entries] == ["chief", "ps", "worker"]
    config = variables(entries["worker"], 1)["TF_CONFIG"]
    assert json.loads(config.replace("$(rank)", "1")) == {
        "cluster": {
            "chief": ["$(service.chief[0].host):2222"],
            "ps": ["$(service.ps[0].host):2222"],
            "worker": ["$(service.worker[0].host):3333", "$(service.worker[1].host):3333"],
        },
        "task": {"type": "worker", "index": 1},
    }
    assert variables(entries["worker"], 0) == {}
    assert '"type": "ps"' in variables(entries["ps"])["TF_CONFIG"]
    assert [port["port"] for port in job["spec"]["service"]["ports"]] == [2222, 3333]
    assert any("enableDynamicWorker" in each for each in told)


def test_a_tfjobs_policies() -> None:
    job, _ = converted(TF)
    entries = by_type(job)
    assert entries["chief"]["restartPolicy"] == {"policy": "Never"}
    assert entries["ps"]["restartPolicy"] == {"policy": "Always", "limit": 3}
    assert entries["worker"]["restartPolicy"] == {"policy": "OnFailure", "limit": 3}
    (rule,) = job["spec"]["runPolicy"]["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["replicaTypes"]) == ("FailJob", ["worker"])
    values = rule["onExitCodes"]["values"]
    assert (values[0], values[-1], len(values)) == (1, 127, 127)
    assert job["spec"]["cleanUpPolicy"] == "All"
    assert job["spec"]["scheduler"] == {"t9kScheduler": {"queue": "fast"}}
    assert job["spec"]["successRules"] == [{"worker": [0, 1]}]


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("  successPolicy: AllWorkers\n", "", {"chief": [0]}),
        ("Chief:", "Master:", {"worker": [0, 1]}),
        ("  successPolicy: AllWorkers\n", '  successPolicy: ""\n', {"chief": [0]}),
    ],
)
def test_who_decides_on_a_tfjobs_success(old: str, new: str, rule: Any) -> None:
    job, _ = converted(TF.replace(old, new))
    assert job["spec"]["successRules"] == [rule]


def test_what_never_ends_is_ended_when_the_chief_has_succeeded() -> None:
    text = TF.replace("cleanPodPolicy: All, ", "")
    job, _ = converted(text)
    assert job["spec"]["cleanUpPolicy"] == "Unfinished"
    job, _ = converted(text[: text.index("    PS:")] + text[text.index("    Worker:") :])
    assert "cleanUpPolicy" not in job["spec"]
    job, _ = converted(XGBOOST)
    assert "cleanUpPolicy" not in job["spec"]


def test_one_worker_alone_needs_no_cluster() -> None:
    text = TF[: TF.index("    Chief:")] + TF[TF.index("    Worker:") :]
    job, _ = converted(text.replace("replicas: 2", "replicas: 1"))
    assert "TF_CONFIG" not in str(job)
    assert "service" not in job["spec"]
    assert job["spec"]["successRules"] == [{"worker": [0]}]


def test_a_jaxjob_has_a_coordinator() -> None:
    job, told = converted(JAX)
    (entry,) = job["spec"]["replicaSpecs"]
    assert variables(entry) == {
        "COORDINATOR_ADDRESS": "$(service.worker[0].host)",
        "COORDINATOR_PORT": "6666",
        "NUM_PROCESSES": "2",
        "PROCESS_ID": "$(rank)",
        "PYTHONUNBUFFERED": "1",
        "LR": "0.1",
    }
    assert job["spec"]["service"]["ports"] == [{"port": 6666}]
    assert job["spec"]["runMode"] == {"pause": {"enabled": True}}
    assert entry["restartPolicy"] == {"policy": "OnFailure", "limit": 6}
    for word in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "6 times at most"):
        assert any(word in each for each in told)


def test_one_process_of_jax_is_its_own_coordinator() -> None:
    job, _ = converted(JAX.replace("replicas: 2", "replicas: 1"))
    (entry,) = job["spec"]["replicaSpecs"]
    assert variables(entry)["COORDINATOR_ADDRESS"] == "localhost"
    assert "service" not in job["spec"]


def test_an_xgboostjob_has_ranks() -> None:
    job, _ = converted(XGBOOST)
    entries = by_type(job)
    assert [*entries] == ["master", "worker-0", "worker-1"]
    assert [variables(each)["RANK"] for each in entries.values()] == ["0", "1", "2"]
    for each in entries.values():
        found = variables(each)
        assert found["MASTER_ADDR"] == "$(service.master[0].host)"
        assert (found["MASTER_PORT"], found["WORLD_SIZE"]) == ("9999", "3")
        assert found["WORKER_ADDRS"] == "$(service.worker-0[0].host),$(service.worker-1[0].host)"
    assert job["spec"]["successRules"] == [{"master": [0]}]


def test_a_master_that_runs_what_workers_run_is_one_of_them() -> None:
    job, _ = converted(XGBOOST.replace(", --quiet", ""))
    (entry,) = job["spec"]["replicaSpecs"]
    assert (entry["type"], entry["replicas"]) == ("worker", 3)
    found = variables(entry)
    assert (found["RANK"], found["WORLD_SIZE"]) == ("$(rank)", "3")
    assert found["MASTER_ADDR"] == "$(service.worker[0].host)"
    assert found["WORKER_ADDRS"] == "$(service.worker[1].host),$(service.worker[2].host)"
    assert job["spec"]["successRules"] == [{"worker": [0]}]


def test_a_master_alone() -> None:
    job, _ = converted(XGBOOST[: XGBOOST.index("    Worker:")])
    (entry,) = job["spec"]["replicaSpecs"]
    assert (variables(entry)["WORLD_SIZE"], variables(entry)["MASTER_ADDR"]) == ("1", "localhost")


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (XGBOOST, "    Master:", "    Other:", "needs one Master"),
        (XGBOOST, "replicas: 1", "replicas: 2", "needs one Master"),
        (XGBOOST, "replicas: 2", "replicas: 2000", "more than 100 .* give the Master"),
        (TF, "replicas: 2", "replicas: 1000000000", "are more than 20000"),
        (JAX, "    Worker:", "    Other:", "Worker is missing"),
        (JAX, "containers:", "others:", "has no container"),
    ],
)
def test_what_cannot_be_is_refused(text: str, old: str, new: str, message: str) -> None:
    with pytest.raises(InvalidManifest, match=message):
        convert(text.replace(old, new, 1))
