"""The output of the startup probes of launching pods, read from Events.

A pod's status says that a startup probe has not succeeded, but not what it printed; that is in the
Event of the kubelet with reason `Unhealthy`. It is read while a launch waits (decision 100), and
once more after the launch has started, for its last output (decision 128).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from trainyard.kinds.shared.reasons import launch_wait_message
from trainyard.kube.client import Client, Selection
from trainyard.kube.errors import KubeError
from trainyard.kube.resources import EVENTS
from trainyard.lifecycle.observed import Pod

POLL_INTERVAL = timedelta(seconds=5)
"""At most so often are the Events of a pod read."""
GRACE_PERIOD = timedelta(seconds=3)
"""Most launches start sooner; nothing is read until then."""


class _Output(NamedTuple):
    text: str = ""
    at: datetime | None = None
    """When it was read, if it was."""
    is_last: bool = False
    """Whether it was read after the launch had started."""


class LaunchProbeOutput:
    """The last probe output of each pod that was seen before it had started."""

    def __init__(self, client: Client, now: Callable[[], datetime]) -> None:
        self._client, self._now = client, now
        self._by_job: dict[str, dict[str, _Output]] = {}

    async def probe_output_by_pod(self, job_uid: str, pods: Iterable[Pod]) -> Mapping[str, str]:
        """The output by pod UID, for the job's pods that launch or wait for a startup probe."""
        before = self._by_job.pop(job_uid, {})
        outputs = {}
        for pod in pods:
            known = before.get(pod.uid)
            if any(container.started is False for container in pod.containers):
                outputs[pod.uid] = await self._current_output(pod, known or _Output())
            elif known is not None:
                outputs[pod.uid] = await self._last_output(pod, known)
        if outputs:
            self._by_job[job_uid] = outputs
        return {uid: each.text for uid, each in outputs.items() if each.text}

    def forget(self, job_uid: str) -> None:
        """The job is gone."""
        self._by_job.pop(job_uid, None)

    def _is_overdue(self, pod: Pod) -> bool:
        return any(
            c.started is False and c.since is not None and self._now() - c.since >= GRACE_PERIOD
            for c in pod.containers
        )

    async def _current_output(self, pod: Pod, before: _Output) -> _Output:
        now = self._now()
        is_known = before.at is not None and now - before.at < POLL_INTERVAL
        if is_known or not self._is_overdue(pod):
            return before
        return _Output(await self._read_events(pod, before.text), now)

    async def _last_output(self, pod: Pod, before: _Output) -> _Output:
        if before.is_last:
            return before
        return _Output(await self._read_events(pod, before.text), self._now(), is_last=True)

    async def _read_events(self, pod: Pod, before: str) -> str:
        which = Selection(fields=f"involvedObject.uid={pod.uid},reason=Unhealthy")
        try:
            events, _ = await self._client.list(EVENTS, pod.namespace, which)
        except KubeError:  # no right to list them, or no answer: the launch goes on all the same
            return before
        messages = [str(e.get("message")) for e in sorted(events, key=_timestamp)]
        outputs = [output for text in messages if (output := launch_wait_message(text))]
        return outputs[-1] if outputs else before


def _timestamp(event: Mapping[str, object]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
