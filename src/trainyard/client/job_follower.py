"""Follow jobs until they are over: watch them, their pods and warnings, and stream the logs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self

from trainyard.client.job_lookup import pods_of
from trainyard.client.job_view import Job
from trainyard.client.log_streams import (
    Kept,
    LogFollower,
    LogRequest,
    Unfinished,
    text_at_last,
    texts,
)
from trainyard.client.metrics_client import NoMetrics, Place, Used, used_by_pods
from trainyard.client.object_views import Object
from trainyard.client.object_watcher import watch
from trainyard.client.pod_views import PodView
from trainyard.kinds.shared import labels
from trainyard.kinds.shared.reasons import NEVER_HERE, EventReason, Phase
from trainyard.kube.client import Client, Selection
from trainyard.kube.errors import ApiError, KubeError, Unreachable
from trainyard.kube.resources import EVENTS, PODS, Resource

_DRAIN_SECONDS = 3.0
_LAST_WORDS_SECONDS = 1.0
_VERDICT_SECONDS = 1.0
"""So long may a pod's own condition come after the event of the same."""
_USAGE_SECONDS = 2.0
_LAST_BYTES = 4096
"""Of a line that grows: more fits no terminal."""
_TOLD_ELSEWHERE = (EventReason.FAILED, EventReason.DEADLINE_EXCEEDED, EventReason.IGNORED_FIELD)
"""By the summary, and when the manifest was read."""
_STARTING = "Startup probe failed"
"""So it does until the start is over; of one that never ends is told by other events."""
_See = Callable[[Object, bool], None]
"""Takes an object as it is now, or, with True, was last."""


class Screen(Protocol):
    """Where a follower shows what happens, for as long as its block lasts."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def job_changed(self, job: Job) -> None:
        """The job or one of its pods changed."""

    def log_lines(self, job: Job, source: str, lines: Sequence[str]) -> None:
        """`source` is the replica, with the container where there are several."""

    def line_grew(self, job: Job, source: str, text: str) -> None:
        """What stands on the line that a replica is still writing, such as a progress bar.

        The line itself is among `log_lines` once it is whole.
        """

    @property
    def is_live(self) -> bool:
        """Whether it shows what is used, which is measured only where somebody looks."""

    def usage_changed(self, used: Mapping[Place, Used]) -> None:
        """What the pods use that run."""

    def warning(self, about: str, message: str) -> None:
        """Something that the user should know."""

    def note(self, text: str) -> None:
        """Something that the user may want to know."""


class Follower:
    """Follows a set of jobs that were just created."""

    def __init__(
        self, client: Client, jobs: Sequence[Job], screen: Screen, kept: Kept | None = None
    ) -> None:
        """`kept` reads the logs of pods that are gone, where these are kept."""
        self._client = client
        self._screen = screen
        self.jobs = {job.uid: job for job in jobs}
        self._changed = asyncio.Event()
        wanted = LogRequest(follow=True)
        self._logs = LogFollower(
            client, wanted, self._log_lines, lambda _: None, kept, self._line_grew
        )
        self._warned: set[tuple[str, str]] = set()
        self.over_at: dict[str, float] = {}
        """When a job was first seen to be over, by its UID, in seconds of `time.monotonic`."""
        self._ended: set[str] = set()
        """Jobs of whose success an event has told."""
        self._early: dict[str, list[Object]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Until every job is over, or is one that does not end by itself (`is_settled`)."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            watches = self._watch_all(group)
            if self._screen.is_live:
                watches.append(group.create_task(self._measure()))
            try:
                while not self.is_settled:
                    self._changed.clear()
                    await self._changed.wait()
                await self._see_the_rest()
                await self._logs.drain(_DRAIN_SECONDS)
            finally:
                self._logs.stop()
                for task in watches:
                    task.cancel()

    @property
    def is_settled(self) -> bool:
        """Every job is over or paused, or asks for what will never be there (decision 341). A debug
        job never is: it waits for the user."""
        return all(
            job.is_over or (job.is_paused and job.phase == "Paused") or job.never_fits
            for job in self.jobs.values()
        )

    def _watch_all(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        ours = labels.JOB_UID
        collections = {(job.resource, job.namespace): None for job in self.jobs.values()}
        namespaces = {namespace: None for _, namespace in collections}
        return [
            *(group.create_task(self._watch_jobs(*each)) for each in collections),
            *(group.create_task(self._watch(PODS, n, self.pod_seen, ours)) for n in namespaces),
            *(group.create_task(self._watch(EVENTS, n, self.event_seen)) for n in namespaces),
        ]

    async def _watch_jobs(self, resource: Resource, namespace: str) -> None:
        """Jobs that were deleted before the watch began are in none of its changes."""
        states = watch(self._client, resource, namespace, is_patient=True)
        async with contextlib.aclosing(states):
            async for state in states:
                for obj in state.changed:
                    self.job_seen(obj)
                for obj in state.gone:
                    self.job_seen(obj, True)
                for job in self.jobs.values():
                    is_watched = (job.resource, job.namespace) == (resource, namespace)
                    if is_watched and not job.is_deleted and job.uid not in state.present:
                        self.job_seen(job.obj, True)

    async def _watch(self, resource: Resource, namespace: str, see: _See, wanted: str = "") -> None:
        states = watch(self._client, resource, namespace, Selection(wanted), is_patient=True)
        async with contextlib.aclosing(states):
            async for state in states:
                for obj in state.changed:
                    see(obj, False)
                for obj in state.gone:
                    see(obj, True)

    async def _measure(self) -> None:
        """What is used, every other second, where the cluster tells."""
        namespaces = {job.namespace for job in self.jobs.values()}
        with contextlib.suppress(NoMetrics):
            while True:
                await asyncio.sleep(_USAGE_SECONDS)
                with contextlib.suppress(ApiError, Unreachable):
                    found = [
                        await used_by_pods(self._client, each, labels.JOB_UID)
                        for each in namespaces
                    ]
                    self._screen.usage_changed({k: v for used in found for k, v in used.items()})

    async def _see_the_rest(self) -> None:
        """Pods that ended with their job may be known to it before they are to us."""
        for job in self.jobs.values():
            with contextlib.suppress(KubeError):  # what is known has to do
                for pod in await pods_of(self._client, job):
                    self.pod_seen(pod.obj)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                while any(map(self._may_be_warned_of, self.jobs.values())):
                    self._changed.clear()
                    await self._changed.wait()

    def _may_be_warned_of(self, job: Job) -> bool:
        """Whether the event of its end has yet to come, before which what its ranks missed is told:
        events are written after the status. Nothing is told so of a single pod."""
        is_over = job.phase == Phase.SUCCEEDED and not job.is_deleted
        return is_over and len(job.pods) > 1 and job.uid not in self._ended

    # What the watches report.

    def job_seen(self, obj: Object, is_gone: bool = False) -> None:
        """A job's newest version."""
        job = self.jobs.get(obj["metadata"]["uid"])
        if job is None:
            return
        job.obj, job.is_deleted = obj, is_gone
        if job.is_over:
            self.over_at.setdefault(job.uid, time.monotonic())
        self._show(job)
        self._show_viewer(job)

    def pod_seen(self, obj: Object, is_gone: bool = False) -> None:
        """A pod's newest version."""
        uid = (obj["metadata"].get("labels") or {}).get(labels.JOB_UID, "")
        job = self.jobs.get(uid)
        if job is None or obj["metadata"]["namespace"] != job.namespace:  # decision 93
            return
        pod = PodView(obj)
        if is_gone:
            job.pods.pop(pod.uid, None)
            self._logs.gone(pod)
        else:
            job.pods[pod.uid] = pod
            for event in self._early.pop(pod.uid, ()):
                self.event_seen(event)
            if self._group is not None:
                self._logs.begin(self._group, pod, [each.name for each in pod.containers])
        self._show(job)

    def event_seen(self, obj: Object, is_gone: bool = False) -> None:
        """An Event; warnings about our jobs and pods are shown once."""
        if is_gone:
            return
        about = obj.get("involvedObject") or {}
        is_ours = about.get("uid") in self.jobs or any(
            about.get("uid") in job.pods for job in self.jobs.values()
        )
        event = (str(obj.get("reason")), str(obj.get("message")))
        if event[0] == EventReason.SUCCEEDED:
            self._ended.add(str(about.get("uid")))
            self._changed.set()
        is_told = event[0] in _TOLD_ELSEWHERE or event[1].startswith(_STARTING)
        if is_told or obj.get("type") != "Warning":
            return
        if not is_ours:  # or not yet: pods and events are watched each for itself
            self._early.setdefault(str(about.get("uid")), []).append(obj)
        elif event not in self._warned:
            self._warned.add(event)
            if event[0] == "FailedScheduling" and NEVER_HERE in event[1]:
                # Told as the verdict, where nothing else is waited for.
                later = asyncio.get_running_loop().call_later
                later(_VERDICT_SECONDS, self._warn_unless_verdict, about, event[1])
                return
            is_failure = event[0] in (EventReason.REPLICA_FAILURE, EventReason.RESTART)
            text = _without_lines(event[1]) if is_failure else event[1]
            self._screen.warning(str(about.get("name")), text)

    def _warn_unless_verdict(self, about: Object, message: str) -> None:
        """Tell what a pod will never have here, unless the end of all tells it anyway."""
        if not self.is_settled:
            self._screen.warning(str(about.get("name")), message)

    def _show(self, job: Job) -> None:
        self._screen.job_changed(job)
        self._changed.set()

    def _show_viewer(self, job: Job) -> None:
        """Where the job's TensorBoard can be opened, or why it cannot; each once."""
        viewer = job.viewer
        note = str(viewer.get("note") or "")
        if viewer.get("type") == "Warning" and (job.uid, note) not in self._warned:
            self._warned.add((job.uid, note))
            self._screen.warning(job.name, note)
        if viewer.get("ready") and (job.uid, job.viewer_url) not in self._warned:
            self._warned.add((job.uid, job.viewer_url))
            self._screen.note(f"{job.name}: TensorBoard: {job.viewer_url}")

    def _log_lines(self, pod: PodView, container: str, lines: bytes) -> None:
        self._screen.log_lines(*self._whose(pod, container), texts(lines))

    def _line_grew(self, pod: PodView, container: str, line: Unfinished) -> None:
        self._screen.line_grew(*self._whose(pod, container), text_at_last(line(-_LAST_BYTES)))

    def _whose(self, pod: PodView, container: str) -> tuple[Job, str]:
        job = self.jobs[pod.labels[labels.JOB_UID]]
        return job, f"{pod.replica}/{container}" if len(pod.containers) > 1 else pod.replica


def _without_lines(message: str) -> str:
    """What happened to a replica without the last lines of its log, which were shown."""
    what = message.partition(": ")[0].partition("\n")[0]
    _, newline, follows = message.rpartition("\nRestarting ")
    return f"{what}. Restarting {follows}" if newline else what
