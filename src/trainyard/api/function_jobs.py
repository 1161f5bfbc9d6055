"""Functions on their way to replicas and back."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, Self

from trainyard.api import remote_calls
from trainyard.api.function_capture import Captured
from trainyard.api.job_environment import open_and_secret
from trainyard.api.machine_shares import gpus_each, volume_of, with_threads
from trainyard.api.options import RunOptions
from trainyard.api.remote_calls import Folder, ResultTransport, SealedLines
from trainyard.api.scripts import script_objects
from trainyard.client.cluster_target import ClusterTarget, CommandError
from trainyard.client.job_follower import Screen
from trainyard.client.job_view import Job
from trainyard.kinds.kind_registry import kinds_by_launcher
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.script import Mount, Script, Sizes
from trainyard.payloads.function_call import MARK


class Function:
    """A function on its way to replicas and back."""

    def __init__(
        self, function: Callable[..., Any], captured: Captured, target: ClusterTarget
    ) -> None:
        self.name = remote_calls.job_name(function)
        self.is_local = bool(target.socket)
        self.transport: ResultTransport = (
            Folder(captured) if self.is_local else SealedLines(captured)
        )

    def screen(self, screen: Screen) -> Screen:
        """The same, without the lines that bring something back."""
        return (
            _Unmarked(screen, self.transport) if isinstance(self.transport, SealedLines) else screen
        )

    def document(self, options: RunOptions, interpreter: str) -> str:
        """The manifest of the job that runs it."""
        if not self.is_local and not options.get("image"):
            raise CommandError(
                "name the image that the replicas run on the cluster: image='IMAGE'; it needs "
                "Python 3.8 or newer, and what the function imports"
            )
        if options.get("launcher") == "mpi":
            raise CommandError(
                "launcher='mpi': mpirun tells processes no RANK, by which the value of "
                "rank 0 is known; use torchrun or plain"
            )
        elastic = options.get("elastic")
        replicas = options.get("replicas") or (elastic[1] if elastic else 1)
        gpus, processes = self._shares(options, replicas)
        launcher = options.get("launcher") or ("torchrun" if elastic or processes > 1 else "plain")
        env, secret_env = open_and_secret(options.get("env", {}))
        mounts = [
            Mount(volume_of(os.fspath(source), is_claim=not self.is_local), path)
            for source, path in options.get("mounts", {}).items()
        ]
        name = options.get("name") or self.name
        if isinstance(self.transport, Folder):
            folder = str(self.transport.path)
            mounts.append(Mount({"hostPath": {"path": folder}}, folder))
        else:
            folder = script_objects.CONFIG_MAP_PATH
            mounts.append(Mount({"secret": {"secretName": f"{name}-call"}}, folder))
        script = Script(
            name=name,
            target=f"{folder}/{remote_calls.PROGRAM}",
            launcher=launcher,
            replicas=replicas,
            processes=processes,
            gpus=gpus,
            image=options.get("image") or kinds_by_launcher()[launcher].image,
            interpreter=interpreter if self.is_local else "python",
            env=with_threads(env, replicas * processes, gpus) if self.is_local else env,
            secret_env=secret_env,
            mounts=mounts,
            restarts=options.get("restarts", 0),
            elastic=Sizes(*elastic) if elastic else None,
            queue=options.get("queue", ""),
            timeout_seconds=options.get("timeout"),
        )
        beside = []
        if isinstance(self.transport, SealedLines):
            data = {
                key: base64.b64encode(each).decode()
                for key, each in self.transport.contents.items()
            }
            metadata = {"name": f"{name}-call", "annotations": {labels.SCRIPT_OF: name}}
            head = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
            beside.append(json.dumps({**head, "data": data}))
        return "\n---\n".join([*beside, script_objects.text(script)])

    def _shares(self, options: RunOptions, replicas: int) -> tuple[int, int]:
        """GPUs and processes of each replica."""
        gpus = options.get("gpus")
        if gpus is None:
            gpus = gpus_each(replicas) if self.is_local else 0
        is_plain = options.get("launcher") in ("plain", "none")
        return gpus, options.get("processes") or (1 if is_plain else max(gpus, 1))


class _Unmarked:
    """A screen that does not show the lines by which something comes back."""

    def __init__(self, screen: Screen, way: SealedLines) -> None:
        self._screen, self._way = screen, way
        self.job_changed, self.warning = screen.job_changed, screen.warning
        self.note, self.usage_changed = screen.note, screen.usage_changed
        self.is_live = screen.is_live

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._screen.__exit__(*exception)

    def log_lines(self, job: Job, source: str, lines: Sequence[str]) -> None:
        if own := self._way.take(lines):
            self._screen.log_lines(job, source, own)

    def line_grew(self, job: Job, source: str, text: str) -> None:
        if MARK not in text:
            self._screen.line_grew(job, source, text)
