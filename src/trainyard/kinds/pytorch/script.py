"""A PyTorchTrainingJob that runs a script, under torchrun or plainly."""

from __future__ import annotations

from typing import Any

from trainyard.kinds.shared.run_policy import WORKER
from trainyard.kinds.shared.script import Script, elastic, run_policy, scheduler, template


def spec(script: Script) -> dict[str, Any]:
    """The spec of a job that runs the script; raises ScriptError."""
    found: dict[str, Any] = {}
    if script.launcher == "torchrun":
        script.refuse_unless_python()
        found["torchrunConfig"] = {"enabled": True, "procPerNode": str(script.processes)}
        pod = template(script, "pytorch", args=script.words)
    else:
        script.refuse_processes("torchrun")
        script.refuse_elastic()
        pod = template(script, "pytorch", command=script.command)
    replica: dict[str, Any] = {"type": WORKER, "replicas": script.replicas}
    if script.restarts:
        replica["restartPolicy"] = script.restart_policy
    found["replicaSpecs"] = [{**replica, "template": pod}]
    return {**found, **elastic(script), **run_policy(script), **scheduler(script)}
