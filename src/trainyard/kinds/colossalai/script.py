"""A ColossalAIJob that runs a script."""

from __future__ import annotations

import shlex
from typing import Any

from trainyard.kinds.shared.run_policy import WORKER
from trainyard.kinds.shared.script import SAFE_IN_SHELL, Script, ScriptError, scheduler, template


def spec(script: Script) -> dict[str, Any]:
    """The spec of a job that runs the script; raises ScriptError."""
    script.refuse_unless_python()
    script.refuse_elastic()
    script.refuse_timeout()
    for what, path in (("script", script.target), ("folder", script.folder)):
        if not SAFE_IN_SHELL.fullmatch(path):
            raise ScriptError(
                f"`colossalai run` hands the {what} {path!r} to a shell, which would change it: "
                "rename it, or use another --launcher"
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
