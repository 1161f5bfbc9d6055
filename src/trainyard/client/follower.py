"""Follow jobs until they are over: watch them, their pods and warnings, and stream the logs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from trainyard.client.submission import JobRef
from trainyard.client.view import JobView, PodView
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.reasons import EventReason
from trainyard.kube.client import Client
from trainyard.kube.errors import KubeError
from trainyard.kube.reflector import Reflector
from trainyard.kube.resources import EVENTS, PODS, Resource

_DRAIN_SECONDS = 3.0
_LOG_RETRY_SECONDS = 0.2
_LOG_RETRIES = 10

Object = dict[str, Any]


class Screen(Protocol):
    """Where a follower shows what happens."""

    def job_changed(self, job: JobView) -> None:
        """The job or one of its pods changed."""

    def log_line(self, job: JobView, source: str, line: str) -> None:
        """`source` is the replica, with the container where there are several."""

    def warning(self, about: str, message: str) -> None:
        """Something that the user should know."""

    def note(self, text: str) -> None:
        """Something that the user may want to know."""


class Follower:
    """Follows a set of jobs that were just created."""

    def __init__(self, client: Client, jobs: Sequence[JobRef], screen: Screen) -> None:
        self._client = client
        self._screen = screen
        self._refs = tuple(jobs)
        self.jobs = {job.uid: JobView(job.kind, job.namespace, job.name, job.uid) for job in jobs}
        self._changed = asyncio.Event()
        self._logs: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._warned: set[tuple[str, str]] = set()
        self._early: dict[str, list[Object]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Until every job is over, or is one that does not end by itself (`is_settled`)."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            watches = [group.create_task(reflector.run()) for reflector in self._reflectors()]
            try:
                while not self.is_settled:
                    self._changed.clear()
                    await self._changed.wait()
                await self._drain()
            finally:
                for task in (*watches, *self._logs.values()):
                    task.cancel()

    @property
    def is_settled(self) -> bool:
        """Every job is over or paused. A debug job never is: it waits for the user."""
        return all(
            job.is_over or (job.is_paused and job.phase == "Paused") for job in self.jobs.values()
        )

    async def _drain(self) -> None:
        """Let logs reach their end: containers may have written more than was read."""
        if self._logs:
            await asyncio.wait(self._logs.values(), timeout=_DRAIN_SECONDS)

    def _reflectors(self) -> list[Reflector[Object]]:
        found: list[Reflector[Object]] = []
        resources: dict[tuple[Resource, str], None] = {}
        for job in self._refs:
            resources[job.resource, job.namespace] = None
        for resource, namespace in resources:
            found.append(self._reflector(resource, namespace, _Jobs(self)))
        for namespace in {job.namespace for job in self._refs}:
            found.append(self._reflector(PODS, namespace, _Pods(self), labels.JOB_UID))
            found.append(self._reflector(EVENTS, namespace, _Events(self)))
        return found

    def _reflector(
        self, resource: Resource, namespace: str, sink: _Sink, selector: str = ""
    ) -> Reflector[Object]:
        return Reflector(self._client, resource, _same, sink, namespace=namespace, labels=selector)

    # What the watches report.

    def job_seen(self, obj: Object, *, is_gone: bool = False) -> None:
        """A job's newest version."""
        job = self.jobs.get(obj["metadata"]["uid"])
        if job is None:
            return
        job.raw, job.is_deleted = obj, is_gone
        self._show(job)
        self._tell_viewer(job)

    def pod_seen(self, obj: Object, *, is_gone: bool = False) -> None:
        """A pod's newest version."""
        uid = (obj["metadata"].get("labels") or {}).get(labels.JOB_UID, "")
        job = self.jobs.get(uid)
        if job is None:
            return
        pod = PodView.of(obj)
        if is_gone:
            job.pods.pop(pod.uid, None)
        else:
            job.pods[pod.uid] = pod
            for event in self._early.pop(pod.uid, ()):
                self.event_seen(event)
            self._start_logs(job, pod)
        self._show(job)

    def event_seen(self, obj: Object) -> None:
        """An Event; warnings about our jobs and pods are shown once."""
        about = obj.get("involvedObject") or {}
        is_ours = about.get("uid") in self.jobs or any(
            about.get("uid") in job.pods for job in self.jobs.values()
        )
        said = (str(obj.get("reason")), str(obj.get("message")))
        if said[0] == EventReason.FAILED or obj.get("type") != "Warning":
            return  # the summary says it
        if not is_ours:  # or not yet: pods and events are watched each for itself
            self._early.setdefault(str(about.get("uid")), []).append(obj)
        elif said not in self._warned:
            self._warned.add(said)
            self._screen.warning(str(about.get("name")), said[1])

    def _show(self, job: JobView) -> None:
        self._screen.job_changed(job)
        self._changed.set()

    def _tell_viewer(self, job: JobView) -> None:
        """Where the job's TensorBoard can be opened, or why it cannot; each once."""
        viewer = job.viewer
        note = str(viewer.get("note") or "")
        if viewer.get("type") == "Warning" and (job.uid, note) not in self._warned:
            self._warned.add((job.uid, note))
            self._screen.warning(job.name, note)
        if viewer.get("ready") and (job.uid, job.viewer_url) not in self._warned:
            self._warned.add((job.uid, job.viewer_url))
            self._screen.note(f"{job.name}: TensorBoard: {job.viewer_url}")

    # Logs.

    def _start_logs(self, job: JobView, pod: PodView) -> None:
        for container in pod.containers:
            key = (pod.uid, container.name)
            if container.has_started and key not in self._logs and self._group is not None:
                source = pod.replica
                if len(pod.containers) > 1:
                    source += f"/{container.name}"
                self._logs[key] = self._group.create_task(
                    self._stream(job, pod, container.name, source)
                )

    async def _stream(self, job: JobView, pod: PodView, container: str, source: str) -> None:
        """Every line of one container; a stream that breaks off is taken up where it was."""
        lines = _Lines()
        seen = 0
        for attempt in range(_LOG_RETRIES):
            skip = seen
            try:
                async for chunk in self._client.logs(
                    pod.name, pod.namespace, container=container, follow=True
                ):
                    fresh = chunk[skip:]
                    skip = max(skip - len(chunk), 0)
                    seen += len(fresh)
                    for line in lines.feed(fresh):
                        self._screen.log_line(job, source, line)
                break
            except KubeError:
                if attempt == _LOG_RETRIES - 1 or pod.uid not in job.pods:
                    break
                await asyncio.sleep(_LOG_RETRY_SECONDS)
        for line in lines.rest():
            self._screen.log_line(job, source, line)


class _Lines:
    """Cuts bytes into lines; a carriage return ends one too, as progress bars use it."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [_text(line) for line in lines]

    def rest(self) -> list[str]:
        rest, self._rest = self._rest, b""
        return [_text(rest)] if rest else []


def _text(line: bytes) -> str:
    """As a terminal would show it: what a carriage return overwrote is gone."""
    return line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]


def _same(obj: Object) -> Object:
    return obj


class _Sink:
    """Base of the three sinks: nothing happens."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower

    def replace(self, items: Sequence[Object], resource_version: str) -> None:
        for item in items:
            self.upsert(item)

    def upsert(self, item: Object) -> None:
        raise AssertionError(item)

    def remove(self, item: Object) -> None:
        """Nothing to show."""


class _Jobs(_Sink):
    def upsert(self, item: Object) -> None:
        self.follower.job_seen(item)

    def remove(self, item: Object) -> None:
        self.follower.job_seen(item, is_gone=True)


class _Pods(_Sink):
    def upsert(self, item: Object) -> None:
        self.follower.pod_seen(item)

    def remove(self, item: Object) -> None:
        self.follower.pod_seen(item, is_gone=True)


class _Events(_Sink):
    def upsert(self, item: Object) -> None:
        self.follower.event_seen(item)
