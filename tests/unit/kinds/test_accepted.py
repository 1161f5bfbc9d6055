"""Manifests that people have are accepted as they stand."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.unit.kinds import manifests as m

from trainyard.kinds.kind_admission import check
from trainyard.manifest.reader import read

POD = "spec.replicaSpecs.0.template.spec"
TORCHRUN = m.changed(m.pytorch(), "spec.torchrunConfig", {"enabled": True})
MEMORY = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]
QUEUE = {"t9kScheduler": {"queue": "default", "priority": 100}}
DEBUG = {"debug": {"enabled": True, "replicaSpecs": [{"type": "worker", "command": ["sh"]}]}}

ACCEPTED: dict[str, dict[str, Any]] = {
    "integer quantities": m.changed(
        m.pytorch(), f"{POD}.containers.0.resources", {"limits": {"cpu": 8, "memory": 1024}}
    ),
    "string quantities": m.changed(
        m.pytorch(),
        f"{POD}.containers.0.resources",
        {"limits": {"cpu": "8", "memory": "16Gi"}, "requests": {"cpu": "500m", "memory": "128M"}},
    ),
    "fractional quantities": m.changed(
        m.pytorch(), f"{POD}.containers.0.resources", {"limits": {"cpu": 0.5}}
    ),
    "gpu and rdma": m.changed(
        m.pytorch(),
        f"{POD}.containers.0.resources",
        {"limits": {"nvidia.com/gpu": 8, "rdma/roce": 1}},
    ),
    "torchrun with args": TORCHRUN,
    "torchrun with python and args": m.changed(TORCHRUN, f"{POD}.containers.0.command", ["python"]),
    "torchrun with a module": m.changed(
        TORCHRUN, f"{POD}.containers.0.args", ["-m", "train", "--lr", "1"]
    ),
    "type node": m.changed(m.pytorch(), "spec.replicaSpecs.0.type", "node"),
    "ps and workers": m.pytorch(
        replicaSpecs=[
            {"type": "ps", "template": m.template()},
            {"type": "worker", "replicas": 4, "template": m.template()},
        ]
    ),
    "master and workers": m.pytorch(
        replicaSpecs=[
            {"type": "worker", "replicas": 3, "template": m.template()},
            {"type": "master", "template": m.template()},
        ]
    ),
    "pytorch debug without command and args": m.pytorch(
        runMode=DEBUG,
        torchrunConfig={"enabled": True},
        replicaSpecs=[{"type": "worker", "template": m.template()}],
    ),
    "deepspeed debug without config": m.changed(m.deepspeed(runMode=DEBUG), "spec.config", None),
    "deepspeed debug with an empty script": m.deepspeed(
        runMode=DEBUG, config={"run": {"python": []}}
    ),
    "a template's restartPolicy that is the replicas'": m.changed(
        m.changed(m.pytorch(), f"{POD}.restartPolicy", "OnFailure"),
        "spec.replicaSpecs.0.restartPolicy",
        "OnFailure",
    ),
    "empty launcher template": m.colossalai(),
    "colossalai without launcher": m.changed(
        m.colossalai(),
        "spec.replicaSpecs",
        [{"type": "worker", "template": m.template(m.container("worker"))}],
    ),
    "colossalai module": m.colossalai(torchConfig={"script": ["-m", "train"]}),
    "colossalai debug without script": m.colossalai(runMode=DEBUG, torchConfig={}),
    "rule indexes as strings": m.generic(
        successRules=[{"worker": ["0", "1"], "ps": [0]}], failureRules=[]
    ),
    "an escaped variable": m.changed(
        m.generic(), f"{POD}.containers.0.args", ["$$(service.ps[0].host) $$(replicas[ps])"]
    ),
    "nulls in a template": m.changed(
        m.generic(), f"{POD}.containers.0", {**m.container(), "args": None, "env": None}
    ),
    "generic variables": m.changed(
        m.generic(service={"ports": [{"name": "grpc", "port": 2222}]}),
        "spec.replicaSpecs.1.template.spec.containers.0.args",
        [
            "$(type)-$(rank)-$(replicas[ps])-$(service.ps[0].host):$(service.port[grpc])",
            "$(HOME) $(UNKNOWN_NAME)",
        ],
    ),
    "failure rules beside every success rule": m.generic(
        successRules=[{"worker": [0]}, {"worker": [1]}],
        failureRules=[{"ps": [0]}, {"worker": [0]}, {"worker": [1]}],
    ),
    "torchrun options that nothing else sets": m.pytorch(
        torchrunConfig={
            "enabled": True,
            "extraOptions": ["--tee", "3", "--max_restarts=2", "--rdzv-conf", "timeout=900"],
        }
    ),
    "etcd with its endpoint": m.pytorch(
        torchrunConfig={
            "enabled": True,
            "rdzvBackend": "etcd-v2",
            "extraOptions": ["--rdzv-endpoint", "etcd:2379"],
        }
    ),
    "restarts with a limit": m.changed(
        m.generic(), "spec.replicaSpecs.0.restartPolicy", {"policy": "OnFailure", "limit": 1}
    ),
    "queue and priority": m.pytorch(scheduler=QUEUE),
    "filesets": m.pytorch(tensorboardSpec={"trainingLogFilesets": ["t9k://pvc/a/log"]}),
    "logDir": m.pytorch(
        tensorboardSpec={
            "image": "tb:1",
            "logDir": {
                "pvc": [{"name": "a", "subPath": ["./log"]}],
                "s3": {"secretRef": {"name": "s"}, "uri": ["s3://a/"]},
                "http": {"url": ["http://a"]},
            },
        }
    ),
    "security": m.changed(
        m.pytorch(),
        f"{POD}.containers.0.securityContext",
        {"privileged": True, "capabilities": {"add": ["IPC_LOCK"]}, "runAsUser": 0},
    ),
    "memory volume": m.changed(m.pytorch(), f"{POD}.volumes", MEMORY),
    "hostPath": m.changed(
        m.pytorch(), f"{POD}.volumes", [{"name": "d", "hostPath": {"path": "/d"}}]
    ),
    "nodeSelector": m.changed(m.pytorch(), f"{POD}.nodeSelector", {"zone": "a"}),
    "nodeName": m.changed(m.pytorch(), f"{POD}.nodeName", "node-1"),
    "zero replicas of another type": m.pytorch(
        replicaSpecs=[
            {"type": "master", "template": m.template()},
            {"type": "worker", "replicas": 0, "template": m.template()},
        ]
    ),
    "null in a template": m.changed(m.pytorch(), f"{POD}.containers.0.env", [{"name": "A"}]),
    "elastic": m.pytorch(
        torchrunConfig={"enabled": True},
        elastic={"enabled": True, "minReplicas": 2, "expectedReplicas": 4, "maxReplicas": 8},
    ),
    "deepspeed custom command": m.deepspeed(config={"customCommand": "deepspeed train.py"}),
    "deepspeed other args": m.deepspeed(
        config={
            "run": {"module": ["train"]},
            "otherArgs": [
                "--master_port",
                "12346",
                "--launcher=pdsh",
                "--elastic_training",
                "--no_ssh_check",
            ],
        }
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_without_a_word(name: str) -> None:
    checked = check(ACCEPTED[name])
    assert [str(p) for p in checked.problems] == []
    assert checked.model is not None


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_same_through_yaml(name: str) -> None:
    result = read(yaml.safe_dump(ACCEPTED[name]), "job.yaml")
    assert [str(p) for p in result.problems] == []
    assert result.documents[0].raw == check(ACCEPTED[name]).obj


def test_rules_in_flow_and_block_style_are_the_same() -> None:
    head = f"apiVersion: {m.API}\nkind: GenericJob\nmetadata: {{name: a}}\nspec:\n"
    tail = (
        "  replicaSpecs: [{type: worker, replicas: 2, "
        "template: {spec: {containers: [{name: a, image: i}]}}}]\n"
    )
    flow = read(f'{head}  successRules: [{{worker: [0, "1"]}}]\n{tail}')
    block = read(f"{head}  successRules:\n  - worker:\n    - 0\n    - 1\n{tail}")
    assert not flow.problems
    assert flow.jobs == block.jobs


def test_both_layouts_of_a_colossalai_job_are_the_same_job() -> None:
    old = check(m.colossalai_old())
    assert not old.errors
    assert old.model is not None
    spec = old.obj["spec"]
    assert [entry["type"] for entry in spec["replicaSpecs"]] == ["launcher", "worker"]
    assert spec["torchConfig"] == {"procPerWorker": 1, "script": ["train.py"], "extraArgs": []}
    (container,) = spec["replicaSpecs"][0]["template"]["spec"]["containers"]
    assert container["name"] == "launcher"
    assert container["workingDir"] == "/work"
    worker = spec["replicaSpecs"][1]
    assert worker == {
        "type": "worker",
        "replicas": 2,
        "template": m.template(m.container("worker")),
    }


def test_lists_documents_and_neighbours_in_one_file() -> None:
    items = [m.pytorch(), m.generic()]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {}}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    queue = {
        "apiVersion": "scheduler.tensorstack.dev/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "q"},
        "spec": {"quota": {"requests": {"cpu": 4}}, "maxDuration": "1d12h"},
    }
    generated = m.deepspeed()
    generated["metadata"] = {"generateName": "run-"}
    bare = {"metadata": {"name": "bare"}, "spec": m.pytorch()["spec"]}
    documents = [
        {"apiVersion": "v1", "kind": "List", "items": items},
        {"apiVersion": m.API, "kind": "PyTorchTrainingJobList", "items": [bare]},
        secret,
        claim,
        queue,
        generated,
    ]
    result = read(yaml.safe_dump_all(documents), "all.yaml")
    assert [str(p) for p in result.problems] == []
    assert [d.kind for d in result.documents] == [
        "PyTorchTrainingJob",
        "GenericJob",
        "PyTorchTrainingJob",
        "Secret",
        "PersistentVolumeClaim",
        "Queue",
        "DeepSpeedJob",
    ]
    assert len(result.require_jobs().jobs) == 4


@pytest.mark.parametrize("status", [{"phase": 3, "tasks": "?"}, "Running", None])
def test_a_status_is_not_judged(status: Any) -> None:
    """A server drops it from what users write, whatever it is."""
    assert check({**m.pytorch(), "status": status}).allowed
