"""Jobs, and functions, from submission to their end."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self, TypedDict

from trainyard.api import calls
from trainyard.api.calls import Folder, Lines, Way
from trainyard.api.capture import Captured
from trainyard.api.shares import gpus_each, with_threads
from trainyard.client.changes import delete
from trainyard.client.follower import Follower, Screen
from trainyard.client.job import Job
from trainyard.client.keptlogs import reader
from trainyard.client.provenance import keep_end
from trainyard.client.submission import StandIns, submit
from trainyard.client.target import CommandError, Target
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.script import Mount, Script, Sizes
from trainyard.kube.client import Client
from trainyard.manifest import scripts
from trainyard.manifest.reader import Document
from trainyard.payloads.call import MARK
from trainyard.schema.errors import TrainyardError


class RunOptions(TypedDict, total=False):
    """How a function, or a script, is run."""

    replicas: int
    """How many pods, each with a process of the function; 1 by default."""
    processes: int
    """In each replica; by default one a GPU of it, without GPUs 1."""
    gpus: int
    """Of each replica; by default this machine's, shared out evenly."""
    launcher: str
    """`plain`, which tells each process its rank by the environment, or `torchrun`; by default the
    former, unless there are several processes or the job is elastic."""
    name: str
    """Of the job; by default the function's, with some letters behind."""
    env: dict[str, str]
    """Variables of the replicas."""
    mounts: dict[str, str]
    """Where in the replicas a folder (on a cluster, a claim) is mounted, by the folder."""
    restarts: int
    """How often it is started again after a failure; 0 by default."""
    elastic: tuple[int, int]
    """The least and the most replicas of an elastic job."""
    queue: str
    """The queue in which it waits for its turn."""
    timeout: int
    """Seconds after which it fails."""
    image: str
    """What the replicas run on a cluster of a kubeconfig, where it is needed."""


@asynccontextmanager
async def followed(
    target: Target,
    documents: Sequence[Document],
    screen: Screen,
    stand_ins: StandIns,
    *,
    keep: bool,
) -> AsyncIterator[list[Job]]:
    """Submit jobs and show what they do; the block begins when all have ended.

    They are deleted after it unless `keep`, and when this is cancelled.
    """
    jobs = await submit(target, documents, stand_ins)
    kept = None if target.folder is None else reader(target.folder)
    follower = Follower(target.client, jobs, screen, kept)
    is_kept = False
    try:
        with screen:
            await follower.run()
        for job in follower.jobs.values():
            keep_end(target, job)
        is_kept = keep
        yield list(follower.jobs.values())
    finally:
        if not is_kept:
            await asyncio.shield(_delete(target.client, jobs))


async def _delete(client: Client, jobs: Sequence[Job]) -> None:
    for job in jobs:
        with contextlib.suppress(TrainyardError):
            await delete(client, job, propagation="Foreground")


class Function:
    """A function on its way to replicas and back."""

    def __init__(self, function: Callable[..., Any], captured: Captured, target: Target) -> None:
        self.name = calls.job_name(function)
        self.is_local = bool(target.socket)
        self.way: Way = Folder(captured) if self.is_local else Lines(captured)

    def screen(self, screen: Screen) -> Screen:
        """The same, without the lines that bring something back."""
        return _Unmarked(screen, self.way) if isinstance(self.way, Lines) else screen

    def document(self, options: RunOptions, interpreter: str) -> str:
        """The manifest of the job that runs it."""
        if not self.is_local and not options.get("image"):
            raise CommandError(
                "name the image that the replicas run on the cluster: image='IMAGE'; it needs "
                "Python 3.8 or newer, and what the function imports"
            )
        elastic = options.get("elastic")
        replicas = options.get("replicas") or (elastic[1] if elastic else 1)
        gpus, processes = self._shares(options, replicas)
        launcher = options.get("launcher") or ("torchrun" if elastic or processes > 1 else "plain")
        env = options.get("env", {})
        mounts = [
            Mount(self._volume(source), path) for source, path in options.get("mounts", {}).items()
        ]
        name = options.get("name") or self.name
        if isinstance(self.way, Folder):
            folder = str(self.way.path)
            mounts.append(Mount({"hostPath": {"path": folder}}, folder))
        else:
            folder = scripts.CARRIED_AT
            mounts.append(Mount({"configMap": {"name": f"{name}-call"}}, folder))
        script = Script(
            name=name,
            target=f"{folder}/{calls.PROGRAM}",
            launcher=launcher,
            replicas=replicas,
            processes=processes,
            gpus=gpus,
            image=options.get("image") or scripts.launchers()[launcher].image,
            interpreter=interpreter if self.is_local else "python",
            env=with_threads(env, replicas * processes, gpus) if self.is_local else dict(env),
            mounts=mounts,
            restarts=options.get("restarts", 0),
            elastic=Sizes(*elastic) if elastic else None,
            queue=options.get("queue", ""),
            timeout_seconds=options.get("timeout"),
        )
        beside = []
        if isinstance(self.way, Lines):
            data = {key: base64.b64encode(each).decode() for key, each in self.way.contents.items()}
            metadata = {"name": f"{name}-call", "annotations": {labels.SCRIPT_OF: name}}
            head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            beside.append(json.dumps({**head, "binaryData": data}))
        return "\n---\n".join([*beside, scripts.text(script)])

    def _shares(self, options: RunOptions, replicas: int) -> tuple[int, int]:
        """GPUs and processes of each replica."""
        gpus = options.get("gpus")
        if gpus is None:
            gpus = gpus_each(replicas) if self.is_local else 0
        is_plain = options.get("launcher") in ("plain", "none")
        return gpus, options.get("processes") or (1 if is_plain else max(gpus, 1))

    def _volume(self, source: str) -> dict[str, Any]:
        if self.is_local:
            return {"hostPath": {"path": source}}
        return {"persistentVolumeClaim": {"claimName": source}}


class _Unmarked:
    """A screen that does not show the lines by which something comes back."""

    def __init__(self, screen: Screen, way: Lines) -> None:
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
        if not text.startswith(MARK):
            self._screen.line_grew(job, source, text)
