"""A connection to one cluster, made when it is first needed."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from types import TracebackType
from typing import Self, get_args

from trainyard.api.clusters import (
    Choice,
    ClusterOptions,
    Private,
    connect,
    shape_of,
    would_start,
)
from trainyard.api.options import check
from trainyard.client.cluster_target import ClusterTarget, Where
from trainyard.client.job_actions import Named
from trainyard.client.job_lookup import find
from trainyard.client.job_view import Job

Jobs = list[Job]
"""Since clients have a method `list`."""
JobName = str | Job
"""A job's name, `kind/name` where two kinds share it, or the job itself."""


class Connection:
    """The API server that is meant, and the cluster that was started for it alone."""

    def __init__(
        self,
        *,
        namespace: str | None = None,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
        cluster: Choice = "any",
        options: ClusterOptions | None = None,
    ) -> None:
        if cluster not in get_args(Choice):
            raise ValueError(f"cluster={cluster!r}: it is one of {', '.join(get_args(Choice))}")
        check(options or {}, ClusterOptions)
        config = None if kubeconfig is None else os.fspath(kubeconfig)
        self._where = Where(namespace, config, context)
        self._choice = cluster
        self._cluster_shape = shape_of(options or {})
        self._python: str | None = sys.executable
        self._target: ClusterTarget | None = None
        self._own: Private | None = None
        self._lock = asyncio.Lock()

    @classmethod
    def in_shell(cls, where: Where, cluster: Choice) -> Self:
        """As commands have it: jobs run the Python of the caller's shell, not this one."""
        client = cls(
            namespace=where.namespace,
            kubeconfig=where.kubeconfig,
            context=where.context,
            cluster=cluster,
        )
        client._python = None
        return client

    async def __aenter__(self) -> Self:
        await self.target()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection, and the cluster if it is private."""
        if (own := await self.disconnect()) is not None:
            await asyncio.to_thread(own.close)

    async def disconnect(self) -> Private | None:
        """End the connection; the private cluster that is left to be ended."""
        target, own = self._target, self._own
        self._target = self._own = None
        if target is not None:
            await target.client.aclose()
        return own

    async def target(self) -> ClusterTarget:
        """The API server, connected; raises Error where there is none."""
        async with self._lock:
            if self._target is None:
                self._target, self._own = await connect(
                    self._where, self._choice, self._cluster_shape
                )
            return self._target

    async def present(self) -> ClusterTarget | None:
        """The same, where one is there already: none is started (decision 161)."""
        if self._target is None and would_start(self._where, self._choice):
            return None
        return await self.target()

    async def found(self, job: JobName | Named) -> Job:
        """A job as it is now; raises JobNotFound."""
        target = await self.target()
        if isinstance(job, Job):
            job = Named(f"{job.kind.singular}/{job.name}", job.namespace)
        if isinstance(job, Named):
            here = replace(target, namespace=job.namespace or target.namespace)
            return await find(here, job.text)
        return await find(target, job)
