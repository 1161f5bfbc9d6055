"""Reads a job and its pods from the server before a new leader first acts on the job.

A leader's cache contains the leader's own writes. That of a former standby contains only what its
watches have shown, and a watch may have fallen silent minutes ago without an error. Pods missing in
it would be taken for deleted, and a failure for one that costs nothing (decision 189). So the first
time that a job needs action, the job and its pods are read one by one. A job that needs none costs
no request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from trainyard.kube.client import Client
from trainyard.kube.errors import NotFound
from trainyard.kube.resources import PODS, Resource
from trainyard.lifecycle.observed import Pod
from trainyard.operator.reconcile.job_records import JobRecord
from trainyard.operator.reconcile.object_cache import ObjectCache


class TakeoverResync:
    """Knows which jobs are yet to be read, and reads them; `at_once` requests at a time."""

    def __init__(
        self,
        client: Client,
        jobs: Mapping[str, ObjectCache[JobRecord]],
        pods: ObjectCache[Pod],
        at_once: int,
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._pods = pods
        self._at_once = at_once
        self._is_current: dict[str, bool] = {}

    def start_leading(self) -> None:
        """Trust no job: another leader may have worked until now."""
        self._is_current.clear()

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._is_current.pop(uid, None)

    def require_resync(self, uid: str) -> None:
        """Read the job again before the next action: somebody else has written to it."""
        self._is_current[uid] = False

    def needs_resync(self, job: JobRecord) -> bool:
        """Whether the cache may lack some of the job's state."""
        if job.uid not in self._is_current:
            # A job without a status has no pods yet, as the status comes first (decision 214).
            self._is_current[job.uid] = not job.status and not self._pods_of(job)
        return not self._is_current[job.uid]

    async def resync(self, job: JobRecord, names: Collection[str]) -> None:
        """Read the job, the pods with these names and those that are cached. Raises KubeError."""
        slots = asyncio.Semaphore(self._at_once)

        async def read(name: str) -> None:
            async with slots:
                await self._read_pod(job, name)

        reads = [read(name) for name in sorted(self._pods_of(job) | set(names))]
        for error in await asyncio.gather(*reads, return_exceptions=True):
            if isinstance(error, BaseException):
                raise error
        store = self._jobs[job.kind.kind]
        raw = await self._get(job.kind.resource, job.name, job.namespace)
        if raw is None or raw["metadata"]["uid"] != job.uid:
            store.forget(job)
        else:
            store.record_own_write(JobRecord.decode(job.kind, raw))
        self._is_current[job.uid] = True

    def _pods_of(self, job: JobRecord) -> set[str]:
        return {pod.name for pod in self._pods.owned_by(job.namespace, job.uid)}

    async def _read_pod(self, job: JobRecord, name: str) -> None:
        known = self._pods.get(job.namespace, name)
        raw = await self._get(PODS, name, job.namespace)
        if known is not None and (raw is None or raw["metadata"]["uid"] != known.uid):
            self._pods.forget(known)
        if raw is not None and (pod := Pod.decode(raw)).owner_uid == job.uid:
            self._pods.record_own_write(pod)

    async def _get(self, resource: Resource, name: str, namespace: str) -> dict[str, Any] | None:
        try:
            return await self._client.get(resource, name, namespace)
        except NotFound:
            return None
