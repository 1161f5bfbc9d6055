"""A GenericJob that runs a script, or any program, in replicas that know nothing of each other."""

from __future__ import annotations

from typing import Any

from trainyard.kinds.shared.run_policy import WORKER
from trainyard.kinds.shared.script import Script, scheduler, template


def spec(script: Script) -> dict[str, Any]:
    """The spec of a job that runs the script; raises ScriptError."""
    script.refuse_processes("torchrun")
    script.refuse_elastic()
    if script.restarts:
        script.refuse_timeout()  # it would begin anew with every restart
    replica: dict[str, Any] = {"type": WORKER, "replicas": script.replicas}
    if script.restarts:
        replica["restartPolicy"] = {"policy": script.restart_policy, "limit": script.restarts}
    pod = template(script, "main", command=script.command)
    if script.timeout_seconds:
        pod["spec"]["activeDeadlineSeconds"] = script.timeout_seconds
    return {"replicaSpecs": [{**replica, "template": pod}], **scheduler(script)}
