"""Manifests that would surprise are refused, each with the path and what to write instead."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kinds import manifests as m

from trainyard.kinds.kind_admission import check

Row = tuple[dict[str, Any], str, str]
"""Manifest, path of the problem, part of its text."""

CONTAINER = "spec.replicaSpecs.0.template.spec.containers.0"
SHOWN = "spec.replicaSpecs[0].template.spec.containers[0]"
TORCHRUN = {"enabled": True}


def other(*args: str, **config: Any) -> dict[str, Any]:
    return m.deepspeed(config={"run": {"python": ["a.py"]}, "otherArgs": list(args), **config})


def mounting(path: str) -> dict[str, Any]:
    worker = m.container("worker", volumeMounts=[{"name": "v", "mountPath": path}])
    pod = m.template(worker, volumes=[{"name": "v", "emptyDir": {}}])
    return m.deepspeed(worker={"template": pod})


def variable(text: str, **spec: Any) -> dict[str, Any]:
    return m.changed(
        m.generic(**spec), "spec.replicaSpecs.0.template.spec.containers.0.args", [text]
    )


SERVICE = {"ports": [{"name": "grpc", "port": 2222}]}
STRICT: dict[str, Row] = {
    "unknown spec field": (m.pytorch(replicaSpec=[]), "spec.replicaSpec", "'replicaSpecs'"),
    "misspelt slots": (
        m.deepspeed(config={"slotPerWorker": 1, "run": {"python": ["a"]}}),
        "spec.config.slotPerWorker",
        "did you mean 'slotsPerWorker'?",
    ),
    "a script that no annotation holds": (
        m.deepspeed(config={"customCommand": "x" * 200_000}),
        "spec.config.customCommand",
        "put it into a file of a volume",
    ),
    "more replicas than can be counted through": (
        m.changed(m.pytorch(), "spec.replicaSpecs.0.replicas", 10_001),
        "spec",
        "at most 10000",
    ),
    "misspelt kind": (
        {**m.deepspeed(), "kind": "DeepspeedJob"},
        "kind",
        "did you mean 'DeepSpeedJob'?",
    ),
    "wrong version": (
        {**m.deepspeed(), "apiVersion": "batch/v1"},
        "apiVersion",
        "must be batch.tensorstack.dev/v1beta1",
    ),
    "container commands": (
        m.changed(m.pytorch(), f"{CONTAINER}.commands", ["a"]),
        f"{SHOWN}.commands",
        "did you mean 'command'?",
    ),
    "template metadata": (
        m.changed(m.pytorch(), "spec.replicaSpecs.0.template.metadata", {"lables": {}}),
        "spec.replicaSpecs[0].template.metadata.lables",
        "did you mean 'labels'?",
    ),
    "job metadata": (
        m.changed(m.pytorch(), "metadata.lables", {}),
        "metadata.lables",
        "did you mean 'labels'?",
    ),
    "label of the wrong type": (
        m.changed(m.pytorch(), "metadata.labels", {"a/b": 1}),
        "metadata.labels['a/b']",
        "quote it",
    ),
    "status misplaced": ({**m.pytorch(), "specs": {}}, "specs", "did you mean 'spec'?"),
    "args as text": (m.changed(m.pytorch(), f"{CONTAINER}.args", "a b"), f"{SHOWN}.args", "a list"),
    "bad quantity": (
        m.changed(m.pytorch(), f"{CONTAINER}.resources", {"limits": {"memory": "16 GB"}}),
        f"{SHOWN}.resources.limits.memory",
        "'16 GB' is not a quantity",
    ),
    "quantity of white space": (
        m.changed(m.pytorch(), f"{CONTAINER}.resources", {"limits": {"memory": " "}}),
        f"{SHOWN}.resources.limits.memory",
        "' ' is not a quantity",
    ),
    "variable's name with =": (
        m.changed(m.pytorch(), f"{CONTAINER}.env", [{"name": "A=B", "value": "x"}]),
        f"{SHOWN}.env[0].name",
        "'A=B' cannot be the name of a variable",
    ),
    "image with a blank, which no pod may have": (
        m.changed(m.pytorch(), f"{CONTAINER}.image", "image:1 "),
        f"{SHOWN}.image",
        "must not begin or end with white space",
    ),
    "NUL in a variable": (
        m.changed(m.pytorch(), f"{CONTAINER}.env", [{"name": "A", "value": "x\0y"}]),
        f"{SHOWN}.env[0].value",
        "holds a NUL character",
    ),
    "variable beyond the kernel's limit": (
        m.changed(m.pytorch(), f"{CONTAINER}.env", [{"name": "A", "value": "é" * 65_535}]),
        f"{SHOWN}.env[0].value",
        "longer than the 131072 bytes",
    ),
    "argument beyond the kernel's limit": (
        m.changed(m.pytorch(), f"{CONTAINER}.args", ["ok", "x" * 131_072]),
        f"{SHOWN}.args[1]",
        "longer than the 131072 bytes",
    ),
    "command without a word": (
        m.changed(m.pytorch(), f"{CONTAINER}.command", [""]),
        f"{SHOWN}.command[0]",
        "name the program",
    ),
    "bad pull policy": (
        m.changed(m.pytorch(), f"{CONTAINER}.imagePullPolicy", "Allways"),
        f"{SHOWN}.imagePullPolicy",
        "did you mean 'Always'?",
    ),
    "boolean as text": (
        m.pytorch(runMode={"debug": {"enabled": "true"}}),
        "spec.runMode.debug.enabled",
        "remove the quotes",
    ),
    "number as text": (
        m.changed(m.pytorch(), "spec.replicaSpecs.0.replicas", "4"),
        "spec.replicaSpecs[0].replicas",
        "remove the quotes",
    ),
    "text as number": (
        m.pytorch(torchrunConfig={"procPerNode": 2}),
        "spec.torchrunConfig.procPerNode",
        "quote it",
    ),
    "string run": (
        m.deepspeed(config={"run": {"python": "a.py"}}),
        "spec.config.run.python",
        "write ['a.py']",
    ),
    "string command": (
        m.changed(
            m.pytorch(),
            "spec.replicaSpecs.0.template.spec.containers.0.command",
            "python a.py --lr 0.1",
        ),
        "spec.replicaSpecs[0].template.spec.containers[0].command",
        "write ['python', 'a.py', '--lr', '0.1']",
    ),
    "string of a shell": (
        m.changed(
            m.pytorch(),
            "spec.replicaSpecs.0.template.spec.containers.0.command",
            "cd /x && ./a",
        ),
        "spec.replicaSpecs[0].template.spec.containers[0].command",
        "write ['sh', '-c', 'cd /x && ./a']",
    ),
    "no value": (m.pytorch(runPolicy=None), "spec.runPolicy", "has no value"),
    "wrong policy shape": (
        m.changed(m.generic(), "spec.replicaSpecs.0.restartPolicy", "Never"),
        "spec.replicaSpecs[0].restartPolicy",
        "must be a mapping",
    ),
    "ExitCode in a GenericJob": (
        m.changed(m.generic(), "spec.replicaSpecs.0.restartPolicy", {"policy": "ExitCode"}),
        "spec.replicaSpecs[0].restartPolicy.policy",
        "one of Always, OnFailure, Never",
    ),
    "object policy in a PyTorchTrainingJob": (
        m.changed(m.pytorch(), "spec.replicaSpecs.0.restartPolicy", {"policy": "Never"}),
        "spec.replicaSpecs[0].restartPolicy",
        "must be one of",
    ),
    "elastic in a GenericJob": (
        m.generic(elastic={}),
        "spec.elastic",
        "unknown field; only PyTorchTrainingJob and DeepSpeedJob have it",
    ),
    "both spellings": (
        m.pytorch(runMode={"debug": {"enable": True, "enabled": False}}),
        "spec.runMode.debug.enable",
        "contradicts 'enabled'",
    ),
    "both layouts": (
        {**m.colossalai_old(), "spec": {**m.colossalai_old()["spec"], "replicaSpecs": []}},
        "spec.replicaSpecs",
        "contradicts the old layout",
    ),
}
DEEPSPEED: dict[str, Row] = {
    "no config": (m.changed(m.deepspeed(), "spec.config", None), "spec.config", "is required"),
    "no run": (m.deepspeed(config={}), "spec.config.run", "needs one of"),
    "empty run": (m.deepspeed(config={"run": {"python": []}}), "spec.config.run", "needs one of"),
    "two runs": (
        m.deepspeed(config={"run": {"python": ["a"], "exec": ["b"]}}),
        "spec.config.run.exec",
        "only one of",
    ),
    "no_local_rank": (other("--no_local_rank"), "spec.config.otherArgs[0]", "localRank"),
    "autotuning": (other("--autotuning", "run"), "spec.config.otherArgs[0]", "autotune"),
    "autotuning=": (other("--autotuning=run"), "spec.config.otherArgs[0]", "autotune"),
    "module": (other("--module"), "spec.config.otherArgs[0]", "run.module"),
    "no_python": (other("--no_python"), "spec.config.otherArgs[0]", "run.exec"),
    "hostfile": (other("--hostfile", "/h"), "spec.config.otherArgs[0]", "hostfile"),
    "hostfile=": (other("--hostfile=/h"), "spec.config.otherArgs[0]", "hostfile"),
    "-H": (other("--x=1", "-H", "/h"), "spec.config.otherArgs[1]", "hostfile"),
    "-H glued": (other("-H/h"), "spec.config.otherArgs[0]", "hostfile"),
    "abbreviated": (other("--hostf=/h"), "spec.config.otherArgs[0]", "--hostfile is not allowed"),
    "shortly abbreviated": (other("--mod"), "spec.config.otherArgs[0]", "config.run.module"),
    "abbreviated no_local_rank": (other("--no_local"), "spec.config.otherArgs[0]", "localRank"),
    "no_ssh": (other("--no_ssh"), "spec.config.otherArgs[0]", "ssh"),
    "ssh_port": (other("--ssh_port=22"), "spec.config.otherArgs[0]", "port"),
    "launcher": (other("--launcher", "openmpi"), "spec.config.otherArgs[0]", "pdsh"),
    "launcher=": (other("--launcher=mvapich"), "spec.config.otherArgs[0]", "pdsh"),
    "a script that is python": (
        m.deepspeed(config={"run": {"python": ["python3", "train.py"]}}),
        "spec.config.run.python[0]",
        "begin with 'train.py'",
    ),
    "a script among the options": (
        other("--master_port", "1", "train.py"),
        "spec.config.otherArgs[2]",
        "the script belongs to config.run",
    ),
    "an unknown host": (
        other("--include", "worker-0@worker-2"),
        "spec.config.otherArgs[0]",
        "the workers are called worker-0 to worker-1",
    ),
    "a pod's name as a host": (
        other("--exclude=dj-1a2b3-worker-0"),
        "spec.config.otherArgs[0]",
        "the workers are called worker-0",
    ),
    "an unknown slot": (
        other("-i", "worker-0:1,2", slotsPerWorker=2),
        "spec.config.otherArgs[0]",
        "no slot '2'; its slots are 0 to 1",
    ),
    "nothing left": (
        other("-eworker-0@worker-1:0"),
        "spec.config.otherArgs[0]",
        "leaves no slot",
    ),
    "include and exclude": (
        other("--incl", "worker-0", "--exclude", "worker-1"),
        "spec.config.otherArgs[2]",
        "cannot be used together",
    ),
    "include and num_nodes": (
        other("--num_nodes", "1", "--include", "worker-0"),
        "spec.config.otherArgs[2]",
        "--num_nodes",
    ),
    "elastic_training": (
        other("--elastic_training", localRank=False),
        "spec.config.otherArgs[0]",
        "localRank: false",
    ),
    **{
        f"mount {path}": (
            mounting(path),
            "spec.worker.template.spec.containers[0].volumeMounts[0].mountPath",
            "belongs to the controller",
        )
        for path in (
            "/root/.ssh",
            "/root/.ssh/",
            "/root/.ssh/config",
            "/root/x/../.ssh",
            "/t9k/hostfile",
            "/root/.deepspeed_env",
        )
    },
    "no worker": (m.changed(m.deepspeed(), "spec.worker", None), "spec.worker", "is required"),
    "no replicas": (
        m.changed(m.deepspeed(), "spec.worker.replicas", 0),
        "spec.worker.replicas",
        "rank 0",
    ),
    "zero slots": (
        m.deepspeed(config={"slotsPerWorker": 0, "run": {"python": ["a"]}}),
        "spec.config.slotsPerWorker",
        "at least 1",
    ),
}
TORCH: dict[str, Row] = {
    "torchrun without args": (
        m.pytorch(
            torchrunConfig=TORCHRUN,
            replicaSpecs=[
                {"type": "a", "template": m.template(m.container(command=["python", "a.py"]))}
            ],
        ),
        f"{SHOWN}.args",
        "move the script to args",
    ),
    "torchrun of torchrun": (
        m.changed(m.pytorch(torchrunConfig=TORCHRUN), f"{CONTAINER}.args", ["torchrun", "a.py"]),
        f"{SHOWN}.args[0]",
        "begin with 'a.py'",
    ),
    "a script among torchrun's options": (
        m.pytorch(torchrunConfig={**TORCHRUN, "extraOptions": ["--tee=3", "train.py"]}),
        "spec.torchrunConfig.extraOptions[1]",
        "the script belongs to the args",
    ),
    "procPerNode": (
        m.pytorch(torchrunConfig={"procPerNode": "0"}),
        "spec.torchrunConfig.procPerNode",
        "positive number in quotes or gpu",
    ),
    "rdzvBackend": (
        m.pytorch(torchrunConfig={"rdzvBackend": "etcdv2"}),
        "spec.torchrunConfig.rdzvBackend",
        "did you mean 'etcd-v2'?",
    ),
    "no types": (m.pytorch(replicaSpecs=[]), "spec.replicaSpecs", "at least one"),
    "duplicate types": (
        m.pytorch(replicaSpecs=[{"type": "a", "template": m.template()}] * 2),
        "spec.replicaSpecs[1].type",
        "a second replica type named 'a'",
    ),
    "type is no name": (
        m.changed(m.pytorch(), "spec.replicaSpecs.0.type", "Worker_1"),
        "spec.replicaSpecs[0].type",
        "pod name",
    ),
    "negative count": (
        m.changed(m.pytorch(), "spec.replicaSpecs.0.replicas", -1),
        "spec.replicaSpecs[0].replicas",
        "at least 0",
    ),
    "no rank 0": (
        m.changed(m.pytorch(), "spec.replicaSpecs.0.replicas", 0),
        "spec.replicaSpecs[0].replicas",
        "rank 0",
    ),
    "no container": (
        m.changed(m.pytorch(), "spec.replicaSpecs.0.template", {}),
        "spec.replicaSpecs[0].template.spec.containers",
        "at least one container",
    ),
    "unknown volume": (
        m.changed(m.pytorch(), f"{CONTAINER}.volumeMounts", [{"name": "a", "mountPath": "/a"}]),
        f"{SHOWN}.volumeMounts[0].name",
        "no volume named 'a'",
    ),
    "debug type": (
        m.pytorch(runMode={"debug": {"replicaSpecs": [{"type": "workers"}]}}),
        "spec.runMode.debug.replicaSpecs[0].type",
        "did you mean 'worker'?",
    ),
    "resume type": (
        m.pytorch(runMode={"pause": {"resumeSpecs": [{"type": "ps"}]}}),
        "spec.runMode.pause.resumeSpecs[0].type",
        "the job has worker",
    ),
    "priority": (
        m.pytorch(scheduler={"t9kScheduler": {"priority": 101}}),
        "spec.scheduler.t9kScheduler.priority",
        "at most 100",
    ),
    "negative priority": (
        m.generic(scheduler={"t9kScheduler": {"priority": -1}}),
        "spec.scheduler.t9kScheduler.priority",
        "at least 0",
    ),
    "min over max": (
        m.pytorch(elastic={"enabled": True, "minReplicas": 5, "maxReplicas": 4}),
        "spec.elastic.minReplicas",
        "more than maxReplicas",
    ),
    "expected over max": (
        m.deepspeed(elastic={"enabled": True, "maxReplicas": 4, "expectedReplicas": 5}),
        "spec.elastic.expectedReplicas",
        "out of range",
    ),
    "expected under min": (
        m.deepspeed(elastic={"enabled": True, "minReplicas": 3, "expectedReplicas": 2}),
        "spec.elastic.expectedReplicas",
        "out of range",
    ),
    "backoffLimit": (
        m.pytorch(runPolicy={"backoffLimit": -1}),
        "spec.runPolicy.backoffLimit",
        "at least 0",
    ),
    "deadline": (
        m.pytorch(runPolicy={"activeDeadlineSeconds": 0}),
        "spec.runPolicy.activeDeadlineSeconds",
        "at least 1",
    ),
    "cleanUpPolicy": (
        m.pytorch(runPolicy={"cleanUpPolicy": "unfinished"}),
        "spec.runPolicy.cleanUpPolicy",
        "did you mean 'Unfinished'?",
    ),
    "name": (m.changed(m.pytorch(), "metadata.name", "My.Job"), "metadata.name", "host name"),
    "no name": (m.changed(m.pytorch(), "metadata.name", None), "metadata.name", "is required"),
    "long name": (
        m.changed(m.pytorch(), "metadata.name", "a" * 50),
        "metadata.name",
        "shorten it by 2",
    ),
    "fileset": (
        m.pytorch(tensorboardSpec={"trainingLogFilesets": ["pvc/a"]}),
        "spec.tensorboardSpec.trainingLogFilesets[0]",
        "t9k://pvc/",
    ),
}
COLOSSALAI: dict[str, Row] = {
    "two launchers": (
        m.changed(m.colossalai(), "spec.replicaSpecs.0.replicas", 2),
        "spec.replicaSpecs[0].replicas",
        "exactly one launcher",
    ),
    "no worker": (
        m.changed(m.colossalai(), "spec.replicaSpecs", [{"type": "launcher", "template": {}}]),
        "spec.replicaSpecs",
        "needs a replica type 'worker'",
    ),
    "another type": (
        m.changed(m.colossalai(), "spec.replicaSpecs.1.type", "workers"),
        "spec.replicaSpecs[1].type",
        "did you mean 'worker'?",
    ),
    "worker container": (
        m.changed(m.colossalai(), "spec.replicaSpecs.1.template", m.template()),
        "spec.replicaSpecs[1].template.spec.containers",
        "named 'worker'",
    ),
    "script": (
        m.colossalai(torchConfig={"script": ["python", "train.py"]}),
        "spec.torchConfig.script[0]",
        "begin with 'train.py'",
    ),
    "no script": (m.colossalai(torchConfig={}), "spec.torchConfig.script", "is required"),
    "bare -m": (
        m.colossalai(torchConfig={"script": ["-m"]}),
        "spec.torchConfig.script[0]",
        "needs a module",
    ),
    "mount on the keys": (
        m.changed(
            m.colossalai(ssh={"authMountPath": "/keys"}),
            "spec.replicaSpecs.1.template",
            m.template(
                m.container("worker", volumeMounts=[{"name": "v", "mountPath": "/keys"}]),
                volumes=[{"name": "v", "emptyDir": {}}],
            ),
        ),
        "spec.replicaSpecs[1].template.spec.containers[0].volumeMounts[0].mountPath",
        "belongs to the controller",
    ),
    "relative sshd": (m.colossalai(ssh={"sshdPath": "sshd"}), "spec.ssh.sshdPath", "absolute"),
    "old script": (
        m.colossalai_old(command=["sh", "a.sh"]),
        "spec.worker.command[0]",
        ".py or with -m",
    ),
    "old layout, unknown field": (
        m.colossalai_old(procPerWorkers=1),
        "spec.worker.procPerWorkers",
        "unknown field",
    ),
    "old layout, bad template": (
        m.colossalai_old(template=m.template(m.container("worker", commands=[]))),
        "spec.worker.template.spec.containers[0].commands",
        "did you mean 'command'?",
    ),
    "policy": (
        m.changed(m.colossalai(), "spec.replicaSpecs.1.restartPolicy", {"policy": "ExitCode"}),
        "spec.replicaSpecs[1].restartPolicy.policy",
        "one of Always, OnFailure, Never",
    ),
}
TORCH["scope of a type under torchrun"] = (
    m.changed(m.pytorch(torchrunConfig=TORCHRUN), "spec.replicaSpecs.0.restartScope", "Replica"),
    "spec.replicaSpecs[0].restartScope",
    "use runPolicy.restartScope",
)
TORCH["scope of a type"] = (
    m.changed(m.pytorch(), "spec.replicaSpecs.0.restartScope", "Type"),
    "spec.replicaSpecs[0].restartScope",
    "one of Job, Replica",
)
TORCH["success policy"] = (
    m.pytorch(runPolicy={"successPolicy": "AllWorkers"}),
    "spec.runPolicy.successPolicy",
    "one of Rank0, AllReplicas",
)
DEEPSPEED["success policy"] = (
    m.deepspeed(runPolicy={"successPolicy": "AllReplicas"}),
    "spec.runPolicy.successPolicy",
    "unknown field; only PyTorchTrainingJob has it",
)
DEEPSPEED["another kind's field"] = (
    m.deepspeed(runPolicy={"restartMode": "InPlace"}),
    "spec.runPolicy.restartMode",
    "unknown field; only PyTorchTrainingJob has it",
)
GENERIC: dict[str, Row] = {
    "port name": (
        m.generic(service={"ports": [{"name": "Grpc", "port": 1}]}),
        "spec.service.ports[0].name",
        "'Grpc' is no port name",
    ),
    "rule type": (
        m.generic(successRules=[{"workers": [0]}]),
        "spec.successRules[0].workers",
        "did you mean 'worker'?",
    ),
    "rule index": (
        m.generic(failureRules=[{"worker": [0, 2]}]),
        "spec.failureRules[0].worker[1]",
        "there is no worker-2",
    ),
    "empty rule": (m.generic(successRules=[{}]), "spec.successRules[0]", "names no replica"),
    "rule index text": (
        m.generic(successRules=[{"worker": ["x"]}]),
        "spec.successRules[0].worker[0]",
        "an integer",
    ),
    "no replicas": (
        m.generic(
            successRules=[],
            failureRules=[],
            replicaSpecs=[{"type": "a", "replicas": 0, "template": m.template()}],
        ),
        "spec.replicaSpecs",
        "has no replica",
    ),
    "no service": (
        variable("$(service.ps[0].host)"),
        SHOWN.replace("]", "]", 1) + ".args[0]",
        "set spec.service.ports",
    ),
    "service type": (
        variable("$(service.pss[0].host)", service=SERVICE),
        f"{SHOWN}.args[0]",
        "did you mean 'ps'?",
    ),
    "service index": (
        variable("x$(service.worker[2].host)", service=SERVICE),
        f"{SHOWN}.args[0]",
        "indexes 0 to 1",
    ),
    "service port": (
        variable("$(service.port[http])", service=SERVICE),
        f"{SHOWN}.args[0]",
        "the ports grpc",
    ),
    "replicas of nobody": (variable("$(replicas[x])"), f"{SHOWN}.args[0]", "no replica type 'x'"),
    "unnamed ports": (
        m.generic(service={"ports": [{"name": "a", "port": 1}, {"port": 2}]}),
        "spec.service.ports[1].name",
        "is required",
    ),
}
ROWS = {
    f"{group}: {name}": row
    for group, rows in (
        ("strict", STRICT),
        ("deepspeed", DEEPSPEED),
        ("pytorch", TORCH),
        ("colossalai", COLOSSALAI),
        ("generic", GENERIC),
    )
    for name, row in rows.items()
}


@pytest.mark.parametrize("name", ROWS)
def test_refused_with_path_and_reason(name: str) -> None:
    obj, path, text = ROWS[name]
    checked = check(obj)
    assert checked.model is None
    found = [p.detail for p in checked.errors if p.where == path]
    assert any(text in detail for detail in found), [p.detail for p in checked.problems]


@pytest.mark.parametrize("name", ROWS)
def test_refused_for_this_reason_only(name: str) -> None:
    obj, path, _ = ROWS[name]
    assert {p.where for p in check(obj).errors} == {path}


def test_all_problems_are_reported_at_once() -> None:
    obj = m.changed(m.pytorch(torchrunConfig={"enabled": True}), f"{CONTAINER}.commands", ["a"])
    obj = m.changed(obj, "spec.replicaSpecs.0.replicas", "four")
    obj = m.changed(obj, "spec.scheduler", {"t9kScheduler": {"priority": 200}})
    obj = m.changed(obj, "metadata.name", "A")
    obj = m.changed(obj, f"{CONTAINER}.args", None)
    assert {p.where for p in check(obj).errors} == {
        "metadata.name",
        "spec.scheduler.t9kScheduler.priority",
        "spec.replicaSpecs[0].replicas",
        f"{SHOWN}.commands",
        f"{SHOWN}.args",
    }


FAULTY_BESIDE_THE_NAME: dict[str, tuple[dict[str, Any], str]] = {
    "a job without replicas": (m.job("PyTorchTrainingJob", {}), "spec.replicaSpecs"),
    "a job whose replicas are a number": (m.generic(replicaSpecs=7), "spec.replicaSpecs"),
    "a job without a spec": ({**m.deepspeed(), "spec": None}, "spec"),
    "a job with an unknown field": (m.colossalai(bla=5), "spec.bla"),
    "a Queue": (
        {**m.generic(), "apiVersion": "scheduler.tensorstack.dev/v1beta1", "kind": "Queue"},
        "spec.replicaSpecs",
    ),
    "a TensorBoard": (
        {"apiVersion": "tensorstack.dev/v1beta1", "kind": "TensorBoard", "spec": 5},
        "spec",
    ),
    **{
        kind: ({"apiVersion": "v1", "kind": kind, "dat": {}}, "dat")
        for kind in ("ConfigMap", "Secret", "Service", "Namespace", "PersistentVolumeClaim")
    },
}


@pytest.mark.parametrize("name", FAULTY_BESIDE_THE_NAME)
def test_a_bad_name_is_told_beside_what_else_is_wrong(name: str) -> None:
    obj, other = FAULTY_BESIDE_THE_NAME[name]
    paths = {p.where for p in check({**obj, "metadata": {"name": "Bad_Name"}}).errors}
    assert {"metadata.name", other} <= paths


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret", "Service", "Namespace"])
def test_a_name_that_no_server_takes_is_refused(kind: str) -> None:
    obj = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "-bad"}}
    if kind == "Service":
        obj["spec"] = {"ports": [{"port": 1}]}
    (problem,) = check(obj).errors
    assert problem.where == "metadata.name"
    assert f"is no name of a {kind}" in problem.message


def test_a_misspelt_kind_or_version_does_not_hide_the_other_problems() -> None:
    config = {"slotPerWorker": 2, "run": {"python": "train.py"}}
    obj = {**m.deepspeed(config=config), "kind": "DeepspeedJob", "apiVersion": "v1"}
    inside = {"spec.config.slotPerWorker", "spec.config.run.python"}
    assert {p.where for p in check(obj).errors} == {"kind"} | inside
    obj["kind"] = "DeepSpeedJob"
    assert {p.where for p in check(obj).errors} == {"apiVersion"} | inside
    assert check(obj).obj["apiVersion"] == "v1"


@pytest.mark.parametrize(
    ("obj", "fix"),
    [
        (m.changed(m.generic(), "spec.replicaSpecs.0.restartPolicy", "Never"), "{policy: Never}"),
        (
            m.changed(m.pytorch(), "spec.replicaSpecs.0.restartPolicy", {"policy": "Never"}),
            "write Never",
        ),
    ],
)
def test_the_restart_policy_of_another_kind_is_told_in_this_kinds_form(
    obj: dict[str, Any], fix: str
) -> None:
    (problem,) = check(obj).errors
    assert problem.message.endswith(fix)


def test_a_fault_in_a_template_is_not_told_twice_as_a_missing_container() -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimname": "x"}}
    obj = m.changed(m.pytorch(), "spec.replicaSpecs.0.template.spec.volumes", [volume])
    claim = "spec.replicaSpecs[0].template.spec.volumes[0].persistentVolumeClaim"
    assert {p.where for p in check(obj).errors} == {f"{claim}.claimname", f"{claim}.claimName"}


@pytest.mark.parametrize(
    ("kind", "fix"),
    [("DeepspeedJobList", "did you mean 'DeepSpeedJobList'?"), ("Deployment", "known are PyTorch")],
)
def test_unknown_kinds_are_told_what_there_is(kind: str, fix: str) -> None:
    (problem,) = check({"apiVersion": m.API, "kind": kind, "items": []}).errors
    assert fix in problem.detail
