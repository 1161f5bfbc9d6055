"""A DeepSpeedJob that runs a script."""

from __future__ import annotations

from typing import Any

from trainyard.kinds.shared.run_policy import WORKER
from trainyard.kinds.shared.script import Script, elastic, run_policy, scheduler, template


def spec(script: Script) -> dict[str, Any]:
    """The spec of a job that runs the script; raises ScriptError."""
    script.refuse_unless_python()
    program = [script.target, *script.arguments]
    config = {"slotsPerWorker": script.processes, "run": {script.form: program}}
    worker = {
        "replicas": script.replicas,
        "restartPolicy": script.restart_policy,
        "template": template(script, WORKER),
    }
    shared = {**elastic(script), **run_policy(script), **scheduler(script)}
    return {"config": config, "worker": worker, **shared}
