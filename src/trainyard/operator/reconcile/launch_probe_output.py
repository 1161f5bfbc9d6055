"""What launches say: the output of their startup probes, from Events.

A pod's status tells that a startup probe has not succeeded, not what it prints; that is in the
Event of the kubelet (reason `Unhealthy`). It is asked for while a launch waits (decision 100), and
once more when it has started, for what it had to say of that (decision 128).
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

AGAIN = timedelta(seconds=5)
"""For as long what was told is not asked for again."""
PATIENCE = timedelta(seconds=3)
"""Most launches start before; nothing is asked for until then."""


class _Told(NamedTuple):
    text: str = ""
    at: datetime | None = None
    """When it was asked for, if it was."""
    is_last: bool = False
    """Whether the launch has started."""


class LaunchProbeOutput:
    """The last words of each pod that was seen before it had started."""

    def __init__(self, client: Client, now: Callable[[], datetime]) -> None:
        self._client, self._now = client, now
        self._told: dict[str, dict[str, _Told]] = {}

    async def of(self, job_uid: str, pods: Iterable[Pod]) -> Mapping[str, str]:
        """By UID, for those among the job's pods that launch, or wait for a probe of their own."""
        before = self._told.pop(job_uid, {})
        told = {}
        for pod in pods:
            known = before.get(pod.uid)
            if any(container.started is False for container in pod.containers):
                told[pod.uid] = await self._newest(pod, known or _Told())
            elif known is not None:
                told[pod.uid] = await self._last(pod, known)
        if told:
            self._told[job_uid] = told
        return {uid: each.text for uid, each in told.items() if each.text}

    def forget(self, job_uid: str) -> None:
        """The job is gone."""
        self._told.pop(job_uid, None)

    def _waits(self, pod: Pod) -> bool:
        return any(
            c.started is False and c.since is not None and self._now() - c.since >= PATIENCE
            for c in pod.containers
        )

    async def _newest(self, pod: Pod, before: _Told) -> _Told:
        now = self._now()
        is_known = before.at is not None and now - before.at < AGAIN
        if is_known or not self._waits(pod):
            return before
        return _Told(await self._ask(pod, before.text), now)

    async def _last(self, pod: Pod, before: _Told) -> _Told:
        if before.is_last:
            return before
        return _Told(await self._ask(pod, before.text), self._now(), is_last=True)

    async def _ask(self, pod: Pod, before: str) -> str:
        which = Selection(fields=f"involvedObject.uid={pod.uid},reason=Unhealthy")
        try:
            events, _ = await self._client.list(EVENTS, pod.namespace, which)
        except KubeError:  # not permitted, or not there: the launch goes on all the same
            return before
        messages = [str(e.get("message")) for e in sorted(events, key=_when)]
        said = [words for text in messages if (words := launch_wait_message(text))]
        return said[-1] if said else before


def _when(event: Mapping[str, object]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
