"""What works but should be written otherwise, or has no effect, is pointed out."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kinds import manifests as m

from trainyard.kinds.admission import check

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


def test_both_spellings_with_the_same_value_are_one() -> None:
    checked = check(m.pytorch(runMode={"pause": {"enable": True, "enabled": True}}))
    assert checked.errors == ()
    assert checked.obj["spec"]["runMode"] == {"pause": {"enabled": True}}


def test_reading_twice_is_reading_once() -> None:
    for obj, _, _ in WARNED.values():
        once = check(obj).obj
        assert check(once).obj == once
