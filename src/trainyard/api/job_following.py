"""Jobs from submission to their end, on a screen: `run`, here and in a shell (decision 160).

Imports nothing that a short job does not need.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trainyard.client.cluster_target import ClusterTarget as ClusterTarget
from trainyard.client.cluster_target import first_of
from trainyard.client.job_actions import delete, delete_namesakes
from trainyard.client.job_follower import Follower
from trainyard.client.job_follower import Screen as Screen
from trainyard.client.job_view import Job
from trainyard.client.kept_logs import reader
from trainyard.client.provenance import SubmissionContext as SubmissionContext
from trainyard.client.provenance import keep_end
from trainyard.client.submission import StandIns as StandIns
from trainyard.client.submission import submit
from trainyard.kube.errors import NotFound
from trainyard.kube.resources import PODS
from trainyard.schema.errors import TrainyardError

if TYPE_CHECKING:
    from trainyard.diagnosis.failure_card import FailureCard
    from trainyard.manifest.reader import Document


class Run:
    """Jobs that have been submitted, and are followed."""

    def __init__(self, target: ClusterTarget, jobs: Sequence[Job], screen: Screen) -> None:
        kept = None if target.folder is None else reader(target.folder)
        self.target = target
        self._follower = Follower(target.client, jobs, screen, kept)

    @classmethod
    async def submitted(
        cls,
        target: ClusterTarget,
        documents: Sequence[Document],
        screen: Screen,
        stand_ins: StandIns,
        context: SubmissionContext,
        *,
        replaces: bool = False,
    ) -> Run:
        """Submit the jobs of a manifest; raises Error where that cannot be. With `replaces` jobs
        of the same names are deleted first."""
        if replaces:
            await delete_namesakes(target, documents)
        return cls(target, await submit(target, documents, stand_ins, context), screen)

    @property
    def jobs(self) -> list[Job]:
        """As they are known by now."""
        return list(self._follower.jobs.values())

    def over_at(self, job: Job) -> float:
        """When a job was first seen to be over, by `time.monotonic`; now if it is not."""
        return self._follower.over_at.get(job.uid, time.monotonic())

    async def follow(self) -> None:
        """Show what they do, until all have ended, or wait for their user."""
        try:
            await self._follower.run()
        except BaseExceptionGroup as errors:
            raise first_of(errors) from errors

    def note_ends(self) -> None:
        """Write down how they stand, as far as their submission was recorded."""
        for job in self.jobs:
            keep_end(self.target, job)

    async def delete(self) -> None:
        """Delete them; each goes after its pods, which may take their grace period."""
        for job in self.jobs:
            await delete(self.target.client, job, propagation="Foreground")

    async def kill(self) -> None:
        """End the pods that are left, without any grace."""
        left = [pod for job in self.jobs for pod in job.pods.values()]
        for pod in left:  # the watch takes pods out of the views meanwhile
            with contextlib.suppress(NotFound):
                await self.target.client.delete(
                    PODS, pod.name, pod.namespace, uid=pod.uid, grace_seconds=0
                )

    async def card(self, job: Job) -> FailureCard | None:
        """Who is to blame that one has failed; None where the cluster cannot tell any more."""
        from trainyard.api.diagnosis_inputs import known_card

        return await known_card(self.target, job)

    async def kept_stacks(self, job: Job) -> str:
        """The stacks of its ranks when it hung last; "" if it never did."""
        from trainyard.client.rank_stacks import kept

        return await kept(self.target.client, job)


@asynccontextmanager
async def followed(
    target: ClusterTarget,
    documents: Sequence[Document],
    screen: Screen,
    stand_ins: StandIns,
    context: SubmissionContext,
    *,
    keep: bool,
) -> AsyncIterator[list[Job]]:
    """Submit jobs and show what they do; the block begins when all have ended.

    They are deleted after it unless `keep`, and when this is cancelled.
    """
    run = await Run.submitted(target, documents, screen, stand_ins, context)
    is_kept = False
    try:
        with screen:
            await run.follow()
        is_kept = keep
        yield run.jobs
    finally:
        run.note_ends()
        if not is_kept:
            await asyncio.shield(_delete(run))


async def _delete(run: Run) -> None:
    with contextlib.suppress(TrainyardError):
        await run.delete()
