"""What the plays share: the objects they create, and how the end of each step is told.

A play is a program with one function a step, run by the Python of its client; so nothing but the
standard library is imported here. Each step is told in a line of JSON once it has ended.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

NAMESPACE = os.environ["NAMESPACE"]
PATIENCE_SECONDS = 120
"""For what may take long on a busy machine, and of which no claim is made."""
PORT = 8080
GROUP, VERSION = "batch.tensorstack.dev", "v1beta1"
Object = dict[str, Any]


def pod(name: str, command: str = "exec sleep 3600") -> Object:
    """A pod of one container that runs a line of shell."""
    main = {"name": "worker", "image": "python", "command": ["sh", "-c", command]}
    spec = {"containers": [main], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    return _object("v1", "Pod", name) | {"spec": spec}


def server(name: str) -> Object:
    """A pod that serves HTTP, and is ready when it does."""
    made = pod(name, f"exec python3 -m http.server {PORT} --bind 0.0.0.0")
    probe = {"tcpSocket": {"port": PORT}, "periodSeconds": 1}
    made["spec"]["containers"][0]["readinessProbe"] = probe
    return made


def config_map(name: str, **data: str) -> Object:
    """A ConfigMap."""
    return _object("v1", "ConfigMap", name) | {"data": data}


def service(name: str) -> Object:
    """A Service with an address."""
    spec = {"selector": {"app": name}, "ports": [{"name": "web", "port": 80, "targetPort": PORT}]}
    return _object("v1", "Service", name) | {"spec": spec}


def jobs() -> dict[str, Object]:
    """A job of each kind by the kind's plural; only the GenericJob runs, and ends at once."""
    paused = {"runMode": {"pause": {"enabled": True}}}
    worker = {"type": "worker", "replicas": 1, "template": {"spec": pod("")["spec"]}}
    done = {"spec": pod("", "true")["spec"]}
    launcher = {"type": "launcher", "template": {}}
    deepspeed = {key: value for key, value in worker.items() if key != "type"}
    specs: dict[str, tuple[str, Object]] = {
        "genericjobs": ("GenericJob", {"replicaSpecs": [worker | {"template": done}]}),
        "pytorchtrainingjobs": ("PyTorchTrainingJob", {"replicaSpecs": [worker]} | paused),
        "deepspeedjobs": (
            "DeepSpeedJob",
            {"config": {"run": {"python": ["a.py"]}}, "worker": deepspeed} | paused,
        ),
        "colossalaijobs": (
            "ColossalAIJob",
            {"torchConfig": {"script": ["a.py"]}, "replicaSpecs": [launcher, worker]} | paused,
        ),
    }
    return {
        plural: _object(f"{GROUP}/{VERSION}", kind, "job") | {"spec": spec}
        for plural, (kind, spec) in specs.items()
    }


def _object(version: str, kind: str, name: str) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"app": name}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def main(*steps: Callable[[], object]) -> None:
    """Run each step, whatever became of the others, and tell how it went."""
    with asyncio.Runner() as runner:
        for step in steps:
            told = ""
            try:
                result = step()
                if inspect.iscoroutine(result):
                    runner.run(asyncio.wait_for(result, 3 * PATIENCE_SECONDS))
            except Exception:
                told = traceback.format_exc()
            print(json.dumps({"step": step.__name__, "error": told}), flush=True)
    # What a client has left running, such as threads, is not judged.
    sys.stdout.flush()
    os._exit(0)
