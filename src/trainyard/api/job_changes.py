"""Jobs come, change and go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from trainyard.api.clusters import ClusterOptions
from trainyard.api.connection import Connection, JobName, Jobs
from trainyard.api.errors import WaitTimeout
from trainyard.api.job_manifests import Manifest, read_to_submit
from trainyard.api.options import check, image_pairs, several
from trainyard.client import job_actions
from trainyard.client.claim_folders import empty_claims as empty_claims
from trainyard.client.job_actions import Named as Named
from trainyard.client.job_actions import names_in as names_in
from trainyard.client.job_lookup import JobNotFound, together
from trainyard.client.job_view import Job
from trainyard.client.provenance import SubmissionContext, keep_end
from trainyard.client.provenance_lookup import copy_of as copy_of
from trainyard.client.submission import StandIns, submit, with_debug

if TYPE_CHECKING:
    from trainyard.manifest.reader import ReadResult


class Changing(Connection):
    """What is done to jobs."""

    async def submit(
        self,
        manifest: Manifest | Iterable[Manifest] | ReadResult,
        *,
        replace: bool = False,
        debug: bool = False,
        volumes: Mapping[str, str] = MappingProxyType({}),
        images: tuple[str, str] | Iterable[tuple[str, str]] = (),
        snapshot: bool = False,
    ) -> Jobs:
        """Create the jobs of a manifest, and before them what lies beside them there.

        With `replace`, jobs of the same names are deleted first; with `debug` they are in debug
        mode, in which replicas wait instead of training. On the embedded cluster `volumes`
        are folders that stand for claims, by the claim, and `images` pairs of a pattern of images
        and the Python environment that stands for them; with `snapshot` the jobs run a copy of
        their working folder's code, which later edits do not reach. Raises InvalidManifest with
        every problem; warnings are told by Python's `warnings`.
        """
        check({"volumes": volumes}, ClusterOptions)
        stand_ins = StandIns(volumes, image_pairs(images), self._python)
        read = read_to_submit(manifest)
        target = await self.target()
        if replace:
            old = await self.delete(names_in(read), missing_ok=True)
            await self.wait_until_gone(old)
        documents = [with_debug(d) if debug and d.is_job else d for d in read.documents]
        return await submit(target, documents, stand_ins, SubmissionContext(snapshots=snapshot))

    async def delete(
        self, jobs: JobName | Iterable[JobName | Named], *, missing_ok: bool = False
    ) -> Jobs:
        """Delete jobs, and with them all that they own; they may take their time to end.

        Raises JobNotFound, and deletes none, if one does not exist, unless `missing_ok`.
        """
        found = []
        for job in several(jobs):
            try:
                found.append(await self.found(job))
            except JobNotFound:
                if not missing_ok:
                    raise
        target = await self.target()
        for job in found:
            keep_end(target, job)
        await together([job_actions.delete(target.client, job) for job in found])
        return found

    async def wait_until_gone(
        self, jobs: JobName | Iterable[JobName], *, timeout: float | None = 300.0
    ) -> None:
        """Until deleted jobs and all of their pods are gone; raises WaitTimeout after `timeout`
        seconds. Of what `delete` returned the pods are waited for though the job is gone; a name
        that no job has is gone."""
        client = (await self.target()).client
        found = [job if isinstance(job, Job) else await self._present(job) for job in several(jobs)]
        try:
            async with asyncio.timeout(timeout):
                await together([job_actions.until_gone(client, job) for job in found if job])
        except TimeoutError:
            raise WaitTimeout(
                f"not everything is gone after {timeout:g} s; `trainyard explain` of a job that is "
                "left, or `trainyard events`, tells what it waits for"
            ) from None

    async def _present(self, job: str) -> Job | None:
        try:
            return await self.found(job)
        except JobNotFound:
            return None

    async def pause(self, job: JobName) -> bool:
        """Pause a job: its pods end gracefully, the job stays; False if it was paused already."""
        return await self._switch(job, paused=True)

    async def resume(self, job: JobName) -> bool:
        """Go on with a paused job, at no cost of restarts; False if it was not paused."""
        return await self._switch(job, paused=False)

    async def _switch(self, job: JobName, *, paused: bool) -> bool:
        client = (await self.target()).client
        return await job_actions.set_paused(client, await self.found(job), paused=paused)

    async def scale(self, job: JobName, replicas: int) -> int | None:
        """Change how many replicas an elastic job should have; how many it should have had
        before, None if that was not said.

        Raises CommandError for a job that is not elastic, and for a size beyond its bounds.
        """
        client = (await self.target()).client
        return await job_actions.scale(client, await self.found(job), replicas)
