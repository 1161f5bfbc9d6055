"""Jobs of which a leader knows that nobody else can have begun them, and what it began of them.

A job's first pods need not wait for its account where no other controller can have written one: the
job came into being after this one began to lead (decision 345). Until the account is stored, it is
kept here, and every pass reads it as if it were.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainyard.kinds.table import Kind
from trainyard.kube.client import Client, Selection
from trainyard.kube.errors import KubeError
from trainyard.kube.pagination import decoded
from trainyard.kube.transport import Request, with_query
from trainyard.lifecycle.actions import Plan
from trainyard.operator.cache import version_of
from trainyard.operator.records import JobRecord

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 30.0


class Beginnings:
    """Which jobs are new since this controller works, and accounts that are yet to be stored."""

    def __init__(
        self, client: Client, namespaces: Sequence[str], kinds: Sequence[Kind], which: Selection
    ) -> None:
        self._client = client
        self._namespaces = namespaces
        self._kinds = kinds
        self._which = which
        self._since: dict[str, int] = {}
        """By kind: whatever another leader has seen is as old or older."""
        self._came: dict[str, int] = {}
        """By UID: the resourceVersion with which a job was seen first."""
        self._accounts: dict[str, Mapping[str, Any]] = {}

    def begin(self) -> None:
        """Another may have worked until now."""
        self._since.clear()
        self._came.clear()
        self._accounts.clear()

    async def run(self) -> None:
        """Find out since when this controller is alone; it works without, only slower."""
        async with asyncio.TaskGroup() as group:
            for kind in self._kinds:
                group.create_task(self._look(kind))

    async def _look(self, kind: Kind) -> None:
        while True:
            try:
                found = [await self._version(kind, p) for p in self._namespaces or (None,)]
            except KubeError as error:
                log.debug("%s", error)
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if all(found):
                self._since[kind.kind] = max(found)
            return

    async def _version(self, kind: Kind, namespace: str | None) -> int:
        """How far the collection is: whatever the server had taken in is as old or older."""
        url = with_query(kind.resource.path(namespace), {"limit": 1, **self._which.params})
        what = f"list {kind.resource.full_name}"
        found = decoded((await self._client.raw(Request("GET", url), what)).body, what)
        return version_of(str((found.get("metadata") or {}).get("resourceVersion") or ""))

    def came(self, job: JobRecord) -> None:
        """A job is seen that was not known before."""
        if not job.status:
            self._came[job.uid] = version_of(job.resource_version)

    def is_new(self, job: JobRecord) -> bool:
        """Whether nobody else can have done anything for it, and this controller has not either."""
        since, came = self._since.get(job.kind.kind), self._came.get(job.uid)
        return since is not None and came is not None and came > since and not job.status

    def begun(self, job: JobRecord, plan: Plan) -> Plan:
        """The plan of its first pods, without the account on which they rely: that is kept here."""
        del self._came[job.uid]
        self._accounts[job.uid] = plan.status or {}
        return replace(plan, status=None)

    def seen(self, job: JobRecord) -> JobRecord:
        """The job with its account, stored or not."""
        if job.status:
            self._came.pop(job.uid, None)
        account = self._accounts.get(job.uid)
        if account is None:
            return job
        if (job.status or {}).get("internal"):
            del self._accounts[job.uid]
            return job
        return replace(job, raw={**job.raw, "status": {**(job.status or {}), **account}})

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._came.pop(uid, None)
        self._accounts.pop(uid, None)
