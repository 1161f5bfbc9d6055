"""A ColossalAIJob that runs a script."""

from __future__ import annotations

import shlex
from typing import Any

from trainyard.kinds.shared.run_policy import WORKER
from trainyard.kinds.shared.script import Script, ScriptError, scheduler, template


def spec(script: Script) -> dict[str, Any]:
    """The spec of a job that runs the script; raises ScriptError."""
    script.refuse_unless_python()
    script.refuse_elastic()
    script.refuse_timeout()
    if shlex.quote(script.target) != script.target:
        raise ScriptError(
            f"`colossalai run` cannot start {script.target!r}, whose name a shell would change: "
            "rename it"
        )
    # They pass through the workers' shell (decision 17).
    arguments = [shlex.quote(argument) for argument in script.arguments]
    prefix = ["-m"] if script.form == "module" else []
    worker: dict[str, Any] = {"type": WORKER, "replicas": script.replicas}
    if script.restarts:
        worker["restartPolicy"] = {"policy": script.restart_policy, "limit": script.restarts}
    worker["template"] = template(script, WORKER)
    return {
        "torchConfig": {
            "procPerWorker": script.processes,
            "script": [*prefix, script.target, *arguments],
        },
        "replicaSpecs": [worker],
        **scheduler(script),
    }
