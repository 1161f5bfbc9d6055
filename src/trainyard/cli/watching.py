"""`trainyard list --watch`: the table of jobs, and a line whenever one of them changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from datetime import UTC, datetime

import click

from trainyard.cli.list_ import Wish, job_table, phase_text, restarts, running_text
from trainyard.client.jobs import Found, list_jobs, snapshots
from trainyard.client.target import Target
from trainyard.kinds.table import JOB_KINDS, Kind
from trainyard.kube.errors import NotFound

_KEPT_LINES = 100
"""New lines have columns as wide as the last ones needed."""


async def watch_jobs(target: Target, *, wish: Wish) -> None:
    """Print the present jobs, then each that changes, until interrupted."""
    namespace = None if wish.everywhere else target.namespace
    present = await list_jobs(target, namespace, wish.kinds, wish.selector)
    watch = _Watch(target, wish, namespace)
    watch.begin(present)
    async with asyncio.TaskGroup() as group:
        for kind in wish.kinds or JOB_KINDS.values():
            group.create_task(watch.follow(kind))


class _Watch:
    """Tells changes that show in the table, ages aside."""

    def __init__(self, target: Target, wish: Wish, namespace: str | None) -> None:
        self._target = target
        self._wish = wish
        self._namespace = namespace
        self._shown: dict[str, tuple[Found, tuple[object, ...]]] = {}
        self._lines: deque[Found] = deque(maxlen=_KEPT_LINES)

    def begin(self, jobs: list[Found]) -> None:
        """The table as it is now; its headers come even without any job."""
        for job in jobs:
            self._shown[job.uid] = (job, _visible(job))
            self._lines.append(job)
        click.echo(self._table(jobs))

    async def follow(self, kind: Kind) -> None:
        """Print what changes of one kind; a kind that is not served has no jobs."""
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        states = snapshots(
            self._target.client, kind.resource, self._namespace, selector=self._wish.selector
        )
        with contextlib.suppress(NotFound):
            async with contextlib.aclosing(states):
                async for present in states:
                    jobs = {uid: Found(kind, {**head, **obj}) for uid, obj in present.items()}
                    self._compare(kind, jobs)

    def _compare(self, kind: Kind, jobs: dict[str, Found]) -> None:
        for uid, (job, _) in list(self._shown.items()):
            if job.kind is kind and uid not in jobs:
                del self._shown[uid]
                self._print(Found(kind, {**job.obj, "status": {**job.status, "phase": "Deleted"}}))
        for uid, job in jobs.items():
            if self._shown.get(uid, (job, ()))[1] != (now := _visible(job)):
                self._shown[uid] = (job, now)
                self._print(job)

    def _print(self, job: Found) -> None:
        metadata = {k: v for k, v in job.obj["metadata"].items() if k != "deletionTimestamp"}
        if job.phase == "Deleted":
            job = Found(job.kind, {**job.obj, "metadata": metadata})
        self._lines.append(job)
        click.echo(self._table(list(self._lines)).splitlines()[-1])

    def _table(self, jobs: list[Found]) -> str:
        wish = self._wish
        return job_table(jobs, datetime.now(UTC), everywhere=wish.everywhere, wide=wish.wide)


def _visible(job: Found) -> tuple[object, ...]:
    return phase_text(job), running_text(job), restarts(job)
