"""What works but should be written otherwise, or has no effect, is pointed out."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kinds import manifests as m

from trainyard.kinds.kind_admission import check
from trainyard.schema.problems import format_path

RULE = "spec.replicaSpecs.0.restartPolicy"
TORCHRUN = {"enabled": True}
PYTORCH = "spec.replicaSpecs.0.template.spec.containers.0"


def rules(success: list[Any], failure: list[Any]) -> dict[str, Any]:
    return m.generic(successRules=success, failureRules=failure)


def _nested(place: tuple[str, ...], value: Any) -> Any:
    return {place[0]: _nested(place[1:], value)} if place else value


def torchrun(*options: str, **config: Any) -> dict[str, Any]:
    return m.pytorch(torchrunConfig={**TORCHRUN, "extraOptions": list(options), **config})


WARNED: dict[str, tuple[dict[str, Any], str, str]] = {
    "debug.enable": (
        m.pytorch(runMode={"debug": {"enable": True}}),
        "spec.runMode.debug.enable",
        "write 'enabled'",
    ),
    "pause.enable": (
        m.generic(runMode={"pause": {"enable": True}}),
        "spec.runMode.pause.enable",
        "write 'enabled'",
    ),
    "Always where all must succeed": (
        m.changed(
            m.pytorch(runPolicy={"successPolicy": "AllReplicas"}),
            "spec.replicaSpecs.0.restartPolicy",
            "Always",
        ),
        "spec.replicaSpecs[0].restartPolicy",
        "an exit 0 is final",
    ),
    "nodePort": (
        m.generic(service={"ports": [{"port": 1, "nodePort": 30000}]}),
        "spec.service.ports[0].nodePort",
        "is ignored",
    ),
    "elastic.enable": (
        m.deepspeed(elastic={"enable": True}),
        "spec.elastic.enable",
        "write 'enabled'",
    ),
    "torchrunConfig.enable": (
        m.pytorch(torchrunConfig={"enable": True}),
        "spec.torchrunConfig.enable",
        "write 'enabled'",
    ),
    "Queue": (
        m.colossalai(scheduler={"t9kScheduler": {"Queue": "q"}}),
        "spec.scheduler.t9kScheduler.Queue",
        "write 'queue'",
    ),
    "Module": (
        m.deepspeed(config={"run": {"Module": ["a"]}}),
        "spec.config.run.Module",
        "write 'module'",
    ),
    "Exec": (
        m.deepspeed(config={"run": {"Exec": ["a"]}}),
        "spec.config.run.Exec",
        "write 'exec'",
    ),
    "type master": (
        m.deepspeed(runMode={"debug": {"replicaSpecs": [{"type": "master"}]}}),
        "spec.runMode.debug.replicaSpecs[0].type",
        "worker-0",
    ),
    "launcher": (m.colossalai_old(), "spec.launcher", "old layout"),
    "worker": (m.colossalai_old(), "spec.worker", "old layout"),
    "minNodes": (
        m.pytorch(torchrunConfig={"enabled": True, "minNodes": 2}),
        "spec.torchrunConfig.minNodes",
        "elastic.minReplicas",
    ),
    "elastic without torchrun": (
        m.pytorch(elastic={"enabled": True}),
        "spec.elastic.enabled",
        "torchrun",
    ),
    "customCommand and run": (
        m.deepspeed(config={"customCommand": "x", "run": {"python": ["a"]}}),
        "spec.config.run",
        "customCommand",
    ),
    "customCommand and localRank": (
        m.deepspeed(config={"customCommand": "x", "localRank": False}),
        "spec.config.localRank",
        "customCommand",
    ),
    "customCommand and autotune": (
        m.deepspeed(config={"customCommand": "x", "autotune": "run"}),
        "spec.config.autotune",
        "customCommand",
    ),
    "customCommand and otherArgs": (
        m.deepspeed(config={"customCommand": "x", "otherArgs": ["--hostfile"]}),
        "spec.config.otherArgs",
        "customCommand",
    ),
    "useless under pdsh": (
        m.deepspeed(config={"run": {"python": ["a"]}, "otherArgs": ["--save_pid"]}),
        "spec.config.otherArgs[0]",
        "no effect",
    ),
    "hosts of an elastic job": (
        m.deepspeed(
            config={"run": {"python": ["a"]}, "otherArgs": ["--include", "worker-3"]},
            elastic={"enabled": True, "expectedReplicas": 2, "maxReplicas": 4},
        ),
        "spec.config.otherArgs[0]",
        "while a worker that --include names is not there",
    ),
    "command under torchrun": (
        m.changed(
            m.pytorch(torchrunConfig={"enabled": True}),
            "spec.replicaSpecs.0.template.spec.containers.0.command",
            ["sh", "-c"],
        ),
        "spec.replicaSpecs[0].template.spec.containers[0].command",
        "is ignored",
    ),
    "failureRules alone": (
        rules([], [{"worker": [0, 1]}]),
        "spec.failureRules[0]",
        "without successRules",
    ),
    "a failure rule after which no success is possible": (
        rules([{"worker": [0, 1]}, {"worker": [1], "ps": [0]}], [{"ps": [0]}, {"worker": [1, 0]}]),
        "spec.failureRules[1]",
        "no success rule can be met any more",
    ),
    "a success rule that asks for more than another": (
        rules([{"worker": [0, 1]}, {"worker": [1]}], []),
        "spec.successRules[0]",
        "successRules[1] names some of the same and holds before it",
    ),
    "the same failure rule twice": (
        rules([{"worker": [0]}], [{"ps": [0]}, {"ps": ["0"]}]),
        "spec.failureRules[1]",
        "failureRules[0] is the same",
    ),
    "an empty list in a rule": (
        rules([{"worker": [], "ps": [0]}], []),
        "spec.successRules[0].worker",
        "list all their indexes",
    ),
    "an index twice": (
        rules([{"worker": [0, 0]}], []),
        "spec.successRules[0].worker[1]",
        "names worker-0 a second time",
    ),
    "a limit of Never": (
        m.changed(m.generic(), RULE, {"policy": "Never", "limit": 3}),
        f"{RULE.replace('.0', '[0]')}.limit",
        "the policy is Never",
    ),
    "OnFailure without a limit": (
        m.changed(m.generic(), RULE, {"policy": "OnFailure"}),
        f"{RULE.replace('.0', '[0]')}.policy",
        "restarts nothing while limit is 0",
    ),
    "a budget for Never": (
        m.pytorch(runPolicy={"backoffLimit": 5}),
        "spec.runPolicy.backoffLimit",
        "every restartPolicy is Never",
    ),
    **{
        f"what follows a hang of a {made.__name__} that nobody observes": (
            made(runPolicy={"observe": False, "hang": {"action": "Restart"}}),
            "spec.runPolicy.hang",
            "is ignored: observe is false",
        )
        for made in (m.pytorch, m.deepspeed, m.colossalai, m.generic)
    },
    **{
        f"modules for a next attempt where {why}": (
            m.changed(
                m.pytorch(runPolicy={"preload": ["torch"], **policy}, **more),
                "spec.replicaSpecs.0.template.spec.containers.0.command",
                ["python"],
            ),
            "spec.runPolicy.preload",
            f"is ignored: {why}",
        )
        for why, policy, more in (
            ("restartMode is not", {}, {}),
            ("torchrun", {"restartMode": "InPlace"}, {"torchrunConfig": {"enabled": True}}),
            ("observe is false", {"restartMode": "InPlace", "observe": False}, {}),
        )
    },
    "elastic that is not enabled": (
        m.deepspeed(elastic={"minReplicas": 1, "maxReplicas": 4}),
        "spec.elastic",
        "enabled is not true",
    ),
    "torchrunConfig that is not enabled": (
        m.pytorch(torchrunConfig={"procPerNode": "8"}),
        "spec.torchrunConfig",
        "enabled is not true",
    ),
    "a variable of ranks in arguments of torchrun's": (
        m.changed(
            m.pytorch(torchrunConfig=TORCHRUN), f"{PYTORCH}.args", ["a.py", "$(MASTER_ADDR)"]
        ),
        f"{PYTORCH.replace('.0', '[0]')}.args[1]",
        "$(MASTER_ADDR) stays as it is: torchrun sets it for the processes",
    ),
    "a variable of ranks in a value that stands before it": (
        m.changed(
            m.generic(),
            f"{PYTORCH}.env",
            [{"name": "U", "value": "tcp://$(RANK)"}, {"name": "RANK", "value": "$(rank)"}],
        ),
        f"{PYTORCH.replace('.0', '[0]')}.env[0].value",
        "$(RANK) stays as it is: a GenericJob sets no",
    ),
    "a variable of ranks that replicas of one rank lack": (
        m.changed(m.pytorch(), f"{PYTORCH}.args", ["a.py", "--gpu=$(LOCAL_RANK)"]),
        f"{PYTORCH.replace('.0', '[0]')}.args[1]",
        "$(LOCAL_RANK) stays as it is: a job without torchrun",
    ),
    "a variable of ranks in a DeepSpeedJob": (
        m.changed(
            m.deepspeed(),
            "spec.worker.template.spec.containers.0.env",
            [{"name": "U", "value": "$(MASTER_PORT)"}],
        ),
        "spec.worker.template.spec.containers[0].env[0].value",
        "$(MASTER_PORT) stays as it is: the launcher sets it",
    ),
    "a variable of ranks in a ColossalAIJob": (
        m.changed(
            m.colossalai(),
            "spec.replicaSpecs.1.template.spec.containers.0.env",
            [{"name": "U", "value": "$(WORLD_SIZE)"}],
        ),
        "spec.replicaSpecs[1].template.spec.containers[0].env[0].value",
        "$(WORLD_SIZE) stays as it is: the launcher sets it",
    ),
    **{
        f"{'.'.join(place)} of a template": (
            m.changed(
                m.pytorch(),
                "spec.replicaSpecs.0.template",
                {**m.template(), **_nested(place, value)}
                if place[0] == "metadata"
                else m.template(**{place[1]: value}),
            ),
            format_path(("spec", "replicaSpecs", 0, "template", *place)),
            f"is ignored: {why}",
        )
        for place, value, why in (
            (("spec", "hostname"), "foo", "peers find a replica by"),
            (("spec", "subdomain"), "bar", "peers find a replica by"),
            (("spec", "restartPolicy"), "OnFailure", "that of the replicas is Never"),
            (("metadata", "name"), "foo", "pods are named after the job"),
            (("metadata", "namespace"), "foo", "pods are in the namespace"),
            (("metadata", "generation"), 3, "the server sets it"),
            (("metadata", "labels", "replica-index"), "9", "the controller sets it"),
            (("metadata", "labels", "tensorstack.dev/owner-name"), "x", "the controller sets it"),
            (("metadata", "labels", "job-role"), "x", "the controller sets it"),
            (("metadata", "annotations", "trainyard.dev/attempt"), "7", "the controller sets it"),
        )
    },
    "the command of a DeepSpeedJob": (
        m.changed(m.deepspeed(), "spec.worker.template.spec.containers.0.command", ["./run.sh"]),
        "spec.worker.template.spec.containers[0].command",
        "spec.config says what is launched",
    ),
    "the args of a ColossalAIJob": (
        m.changed(m.colossalai(), "spec.replicaSpecs.1.template.spec.containers.0.args", ["a.py"]),
        "spec.replicaSpecs[1].template.spec.containers[0].args",
        "torchConfig.script is launched",
    ),
    "the command of a launcher": (
        m.changed(
            m.colossalai(),
            "spec.replicaSpecs.0.template",
            m.template(m.container("launcher", command=["colossalai", "run"])),
        ),
        "spec.replicaSpecs[0].template.spec.containers[0].command",
        "the launcher runs torchConfig.script",
    ),
    "an option that is generated": (
        torchrun("--tee", "3", "--nnodes=2"),
        "spec.torchrunConfig.extraOptions[2]",
        "overrides --nnodes, which is the number of replicas",
    ),
    "an option that a field sets": (
        torchrun("--max-restarts", "1", maxRestarts=3),
        "spec.torchrunConfig.extraOptions[0]",
        "overrides --max_restarts, which torchrunConfig.maxRestarts sets",
    ),
    "an abbreviated option": (
        torchrun("--nproc=2"),
        "spec.torchrunConfig.extraOptions[0]",
        "overrides --nproc_per_node",
    ),
    "an option among the args": (
        m.changed(
            m.pytorch(torchrunConfig=TORCHRUN),
            "spec.replicaSpecs.0.template.spec.containers.0.args",
            ["--nproc-per-node", "8", "train.py", "--nnodes", "2"],
        ),
        "spec.replicaSpecs[0].template.spec.containers[0].args[0]",
        "overrides --nproc_per_node",
    ),
    "standalone": (
        torchrun("--standalone"),
        "spec.torchrunConfig.extraOptions[0]",
        "makes each replica train by itself",
    ),
    "an option of another rendezvous": (
        torchrun("--master_port=1"),
        "spec.torchrunConfig.extraOptions[0]",
        "--master_port has no effect",
    ),
    "etcd without an endpoint": (
        torchrun(rdzvBackend="etcd"),
        "spec.torchrunConfig.rdzvBackend",
        "give extraOptions --rdzv_endpoint=HOST:PORT",
    ),
    "an option of colossalai's own": (
        m.colossalai(torchConfig={"script": ["a.py"], "extraArgs": ["--nproc_per_node=2"]}),
        "spec.torchConfig.extraArgs[0]",
        "overrides --nproc_per_node, which torchConfig.procPerWorker sets",
    ),
    "the address of DeepSpeed's rank 0": (
        m.deepspeed(config={"run": {"python": ["a"]}, "otherArgs": ["--master_addr=10.0.0.1"]}),
        "spec.config.otherArgs[0]",
        "overrides --master_addr",
    ),
    "more processes than GPUs": (
        m.changed(
            m.deepspeed(config={"slotsPerWorker": 8, "run": {"python": ["a.py"]}}),
            "spec.worker.template.spec.containers.0.resources",
            {"limits": {"nvidia.com/gpu": 4}},
        ),
        "spec.config.slotsPerWorker",
        "8 processes share 4 GPUs",
    ),
    "one process for all GPUs": (
        m.changed(
            m.pytorch(torchrunConfig=TORCHRUN),
            "spec.replicaSpecs.0.template.spec.containers.0.resources",
            {"limits": {"nvidia.com/gpu": 8}},
        ),
        "spec.replicaSpecs[0].template.spec.containers[0].resources",
        "one process has all 8 GPUs, unless torchrunConfig.procPerNode is set",
    ),
    "one process of ColossalAI for all GPUs": (
        m.changed(
            m.colossalai(),
            "spec.replicaSpecs.1.template.spec.containers.0.resources",
            {"limits": {"nvidia.com/gpu": 8}},
        ),
        "spec.replicaSpecs[1].template.spec.containers[0].resources",
        "unless torchConfig.procPerWorker is set",
    ),
    "num_gpus": (
        m.deepspeed(config={"run": {"python": ["a"]}, "otherArgs": ["--num_gpus=8"]}),
        "spec.config.otherArgs[0]",
        "overrides config.slotsPerWorker",
    ),
    "a command in one word": (
        m.changed(
            m.pytorch(),
            "spec.replicaSpecs.0.template.spec.containers.0.command",
            ["python a.py"],
        ),
        "spec.replicaSpecs[0].template.spec.containers[0].command[0]",
        "write every word for itself: ['python', 'a.py']",
    ),
    "one rank for all": (
        m.changed(
            m.pytorch(),
            "spec.replicaSpecs.0.template.spec.containers.0.env",
            [{"name": "WORLD_SIZE", "value": "4"}, {"name": "RANK", "value": "0"}],
        ),
        "spec.replicaSpecs[0].template.spec.containers[0].env[1]",
        "gives all 4 replicas the same RANK",
    ),
    "ranks that are hidden": (
        m.changed(
            m.pytorch(),
            "spec.replicaSpecs.0.template.spec.containers.0.command",
            ["env", "-u", "RANK", "-u", "WORLD_SIZE", "TRAINYARD_RANK=0", "python", "a.py"],
        ),
        "spec.replicaSpecs[0].template.spec.containers[0].command",
        "hides their ranks from 4 replicas",
    ),
    "another world size": (
        m.changed(
            m.pytorch(),
            "spec.replicaSpecs.0.template.spec.containers.0.env",
            [{"name": "WORLD_SIZE", "value": "8"}],
        ),
        "spec.replicaSpecs[0].template.spec.containers[0].env[0]",
        "the job has 4 ranks",
    ),
    "a variable in a mount": (
        m.changed(
            m.generic(),
            "spec.replicaSpecs.0.template",
            m.template(
                m.container(volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "$(rank)"}]),
                volumes=[{"name": "v", "emptyDir": {}}],
            ),
        ),
        "spec.replicaSpecs[0].template.spec.containers[0].volumeMounts[0].subPath",
        "$(rank) stays as it is here",
    ),
    "resumed arguments of a custom command": (
        m.deepspeed(
            config={"customCommand": "x"},
            runMode={"pause": {"resumeSpecs": [{"type": "worker", "args": ["--resume"]}]}},
        ),
        "spec.runMode.pause.resumeSpecs[0].args",
        "set command",
    ),
    "a resumed worker of ColossalAI": (
        m.colossalai(
            runMode={"pause": {"resumeSpecs": [{"type": "worker", "args": ["--resume"]}]}},
        ),
        "spec.runMode.pause.resumeSpecs[0].args",
        "give it for the launcher",
    ),
    "shell characters": (
        m.colossalai(torchConfig={"script": ["a.py", "a b"]}),
        "spec.torchConfig.script[1]",
        "quote it for the shell",
    ),
    "TensorBoard runMode": (
        m.pytorch(tensorboardSpec={"trainingLogFilesets": ["t9k://pvc/a"], "runMode": "x"}),
        "spec.tensorboardSpec.runMode",
        "use suspend",
    ),
    "TensorBoard folder outside": (
        m.pytorch(tensorboardSpec={"logDir": {"pvc": [{"name": "a", "subPath": ["b", "../c"]}]}}),
        "spec.tensorboardSpec.logDir.pvc[0].subPath[1]",
        "leaves the claim",
    ),
    "TensorBoard store": (
        m.pytorch(
            tensorboardSpec={"logDir": {"s3": {"secretRef": {"name": "k"}, "uri": ["b/c/"]}}}
        ),
        "spec.tensorboardSpec.logDir.s3.uri[0]",
        "s3://BUCKET/PREFIX/",
    ),
    "TensorBoard page": (
        m.pytorch(tensorboardSpec={"logDir": {"http": {"url": ["example.com/events"]}}}),
        "spec.tensorboardSpec.logDir.http.url[0]",
        "https://",
    ),
}


@pytest.mark.parametrize("name", WARNED)
def test_warned_but_accepted(name: str) -> None:
    obj, path, text = WARNED[name]
    checked = check(obj)
    assert checked.errors == ()
    assert checked.model is not None
    assert any(p.where == path and text in p.detail for p in checked.warnings)


def test_old_spellings_mean_the_same() -> None:
    """``debug.enable: true`` is no training; dropped, it would be."""
    old = m.deepspeed(
        runMode={"debug": {"enable": True}, "pause": {"enable": True}},
        elastic={"enable": True},
        scheduler={"t9kScheduler": {"Queue": "q"}},
        config={"run": {"Exec": ["a"]}},
    )
    new = m.deepspeed(
        runMode={"debug": {"enabled": True}, "pause": {"enabled": True}},
        elastic={"enabled": True},
        scheduler={"t9kScheduler": {"queue": "q"}},
        config={"run": {"exec": ["a"]}},
    )
    assert check(old).obj == new
    assert check(old).model == check(new).model


@pytest.mark.parametrize(
    ("made", "fields"),
    [
        (m.pytorch, {"args": ["$(MASTER_ADDR):$(MASTER_PORT)", "$(RANK)/$(WORLD_SIZE)"]}),
        (m.generic, {"args": ["$$(RANK)", "$(HOSTNAME)", "$(date)"]}),
        (m.generic, {"env": [{"name": "RANK", "value": "$(rank)"}], "args": ["--rank=$(RANK)"]}),
        (m.generic, {"envFrom": [{"configMapRef": {"name": "c"}}], "args": ["$(MASTER_ADDR)"]}),
    ],
)
def test_references_to_what_a_container_has_are_not_told(made: Any, fields: dict[str, Any]) -> None:
    obj = made()
    for field, value in fields.items():
        obj = m.changed(obj, f"{PYTORCH}.{field}", value)
    assert [p for p in check(obj).problems if "stays as it is" in p.message] == []


def test_both_spellings_with_the_same_value_are_one() -> None:
    checked = check(m.pytorch(runMode={"pause": {"enable": True, "enabled": True}}))
    assert checked.errors == ()
    assert checked.obj["spec"]["runMode"] == {"pause": {"enabled": True}}


def test_reading_twice_is_reading_once() -> None:
    for obj, _, _ in WARNED.values():
        once = check(obj).obj
        assert check(once).obj == once
