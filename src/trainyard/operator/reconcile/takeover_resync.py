"""What one who takes over makes sure of before it acts on a cache that only ever watched.

A leader's cache knows the leader's own writes; that of a standby knows what its watches told, and a
watch may have fallen silent minutes ago without a word. Pods that it does not know would be taken
for deleted, and an incident for one that costs nothing (decision 189). So the first time that a job
calls for anything, the job and its pods are read, one by one, from the server. A job that calls for
nothing costs nothing.
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
    """Which jobs are yet to be read, and how; `at_once` requests of one job at a time."""

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
        self._is_sure: dict[str, bool] = {}

    def begin(self) -> None:
        """Another may have worked until now."""
        self._is_sure.clear()

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._is_sure.pop(uid, None)

    def doubt(self, uid: str) -> None:
        """Somebody else has written to the job."""
        self._is_sure[uid] = False

    def about(self, job: JobRecord) -> bool:
        """Whether there may be more of it than is known here."""
        if job.uid not in self._is_sure:
            # Decision 214: without a status there is no pod yet.
            self._is_sure[job.uid] = not job.status and not self._pods_of(job)
        return not self._is_sure[job.uid]

    async def settle(self, job: JobRecord, names: Collection[str]) -> None:
        """Read the job, and the pods of these names and those that are known."""
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
            store.wrote(JobRecord.decode(job.kind, raw))
        self._is_sure[job.uid] = True

    def _pods_of(self, job: JobRecord) -> set[str]:
        return {pod.name for pod in self._pods.owned_by(job.namespace, job.uid)}

    async def _read_pod(self, job: JobRecord, name: str) -> None:
        known = self._pods.get(job.namespace, name)
        raw = await self._get(PODS, name, job.namespace)
        if known is not None and (raw is None or raw["metadata"]["uid"] != known.uid):
            self._pods.forget(known)
        if raw is not None and (pod := Pod.decode(raw)).owner_uid == job.uid:
            self._pods.wrote(pod)

    async def _get(self, resource: Resource, name: str, namespace: str) -> dict[str, Any] | None:
        try:
            return await self._client.get(resource, name, namespace)
        except NotFound:
            return None
