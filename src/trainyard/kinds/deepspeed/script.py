"""A DeepSpeedJob that runs a script."""

from __future__ import annotations

import shlex
from typing import Any

from trainyard.kinds.shared.run_policy import WORKER
from trainyard.kinds.shared.script import Script, elastic, run_policy, scheduler, template

_AS_ROOT = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
"""Open MPI refuses to run as root, which is who most containers run as."""


def spec(script: Script) -> dict[str, Any]:
    """The spec of a job that runs the script; raises ScriptError."""
    launch = _mpirun(script) if script.launcher == "mpi" else _deepspeed(script)
    worker = {
        "replicas": script.replicas,
        "restartPolicy": script.restart_policy,
        "template": template(script, WORKER),
    }
    shared = {**elastic(script), **run_policy(script), **scheduler(script)}
    return {"config": {"slotsPerWorker": script.processes, **launch}, "worker": worker, **shared}


def _deepspeed(script: Script) -> dict[str, Any]:
    script.refuse_unless_python()
    return {"run": {script.form: [script.target, *script.arguments]}}


def _mpirun(script: Script) -> dict[str, Any]:
    """The launch of a job of another launcher: one process for each slot of the hostfile."""
    script.refuse_elastic()
    count = script.replicas * script.processes
    # Bound to a core, as Open MPI has it by default, all threads of a process would share that.
    options = f'--hostfile "$TRAINYARD_HOSTFILE" -n {count} --bind-to none'
    return {"customCommand": f"{_AS_ROOT}mpirun {options} {shlex.join(script.command)}"}
