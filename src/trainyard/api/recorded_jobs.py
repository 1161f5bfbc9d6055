"""Jobs that were recorded: which there are, what differs between two, and one of them once more."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from trainyard.api.connection import Connection, JobName, Jobs
from trainyard.api.job_manifests import text_of
from trainyard.client.cluster_target import CommandError
from trainyard.client.job_comparison import Comparison as Comparison
from trainyard.client.job_comparison import Results as Results
from trainyard.client.job_comparison import Side as Side
from trainyard.client.job_comparison import compare
from trainyard.client.job_dependents import objects_with
from trainyard.client.job_lookup import JobNotFound, list_jobs
from trainyard.client.job_view import Job
from trainyard.client.provenance import SubmissionContext, state_of
from trainyard.client.provenance_lookup import Past as Past
from trainyard.client.provenance_lookup import dirt as dirt
from trainyard.client.provenance_lookup import past_of, pasts, record_of
from trainyard.client.rerun_manifest import differences_now, new_name, objects_of
from trainyard.client.rerun_manifest import parse_path as parse_path
from trainyard.client.submission import StandIns, submit
from trainyard.machine.state_folder import records_folder

if TYPE_CHECKING:
    from trainyard.manifest.reader import ReadResult

OF_FUNCTION = "call"
"""How a function's job is submitted, as it is recorded."""
Recorded = JobName | Past
"""A job's name, that of a record, a job, or what `past` or `history` returned."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """A job that was recorded, to be had once more."""

    past: Past
    manifest: ReadResult

    @property
    def differences(self) -> list[str]:
        """What is not as it was then, in a sentence each; git and the interpreter are asked."""
        return differences_now(self.past)

    @property
    def how(self) -> str:
        """How the first one was submitted, `run` or `submit`."""
        record = self.past.record
        return str(record.content.get("how") or "submit") if record else "submit"

    @property
    def options(self) -> dict[str, Any]:
        """Of the embedded cluster that was started for the first one."""
        record = self.past.record
        return dict(record.content.get("options") or {}) if record else {}

    def context(self, how: str) -> SubmissionContext:
        """What is to be recorded of it."""
        images = tuple(tuple(each) for each in self.options.get("images", ()))
        return SubmissionContext(
            how=how,
            options=self.options,
            images=images,
            snapshots=self.past.has_copy,
            rerun_of=self.past.record,
        )


class Repeating(Connection):
    """What is known of jobs from their submission on."""

    async def past(self, job: Recorded) -> Past:
        """A job with what was recorded of it: one that is there, else the last of that name which
        was submitted on this machine.

        `NAME~1` is the one before, and so on; the name of a record is the job of that record.
        Starts no cluster. Raises JobNotFound, or CommandError where none is recorded either.
        """
        target = await self.present()
        if isinstance(job, str):
            return await past_of(target, job, await self._state())
        known = job.job if isinstance(job, Past) else job
        with contextlib.suppress(JobNotFound):
            found = await self.found(known) if target else None
            if target and found and _is_same(found, job):
                return Past(found, record_of(target, found), is_there=True)
        if isinstance(job, Past):
            return job
        return Past(job, record_of(target, job) if target else None, is_there=True)

    async def diff(self, a: Recorded, b: Recorded) -> Comparison:
        """What differs between two jobs: in what was asked for, in code, packages and interpreter,
        and in how they ended. Jobs are named as for `past`.
        """
        return compare(await self.past(a), await self.past(b))

    async def rerun(
        self,
        job: Recorded,
        changes: Mapping[str, Any] = MappingProxyType({}),
        *,
        name: str = "",
    ) -> Job:
        """Submit what a job did once more, under a new name; jobs are named as for `past`.

        `changes` are values by the path of a field, as `{"spec.replicaSpecs[0].replicas": 4}`;
        without `name` the new job has the old one's with a number. It runs the code that was copied
        then, if it was, else the present one. What is different by now, in code, interpreter or
        packages, is told by Python's `warnings`. Raises InvalidManifest, and CommandError for a
        path that is not there.
        """
        again = await self.repetition(job, changes, name)
        for text in await asyncio.to_thread(lambda: again.differences):  # git may take its time
            warnings.warn(text, stacklevel=2)
        [submitted] = await self.submit_again(again, again.context("submit"))
        return submitted

    async def repetition(self, job: Recorded, changes: Mapping[str, Any], name: str) -> Repetition:
        """What `rerun` submits."""
        from trainyard.manifest.reader import read

        past = await self.past(job)
        if past.record is not None and past.record.content.get("how") == OF_FUNCTION:
            raise CommandError(
                f"{past} ran a function, and what that was called with is gone: call it again"
            )
        name = name or new_name(past.job.name, await self._taken(past.job.namespace))
        target = await self.present() if past.is_there else None
        present = await objects_with(target.client, past.job) if target else []
        text = "\n---\n".join(map(text_of, objects_of(past, name, changes, present)))
        return Repetition(past, read(text).require_jobs())

    async def submit_again(self, again: Repetition, context: SubmissionContext) -> Jobs:
        """Submit it."""
        stand_ins = StandIns(python=self._python)
        return await submit(await self.target(), again.manifest.documents, stand_ins, context)

    async def _taken(self, namespace: str) -> set[str]:
        """The names that jobs have, or had."""
        taken = {past.job.name for past in pasts(await self._state())}
        if (target := await self.present()) is not None:
            taken |= {job.name for job in await list_jobs(target, namespace)}
        return taken

    async def _state(self) -> Path:
        """The folder with the records."""
        target = None if self._own else await self.present()
        return (state_of(target) if target else None) or records_folder()


def _is_same(found: Job, wanted: Job | Past) -> bool:
    if isinstance(wanted, Job):
        return found.uid == wanted.uid
    return Past(found, None, is_there=True).record_name == wanted.record_name


def history(name: str = "", *, namespace: str = "", limit: int = 20) -> list[Past]:
    """The jobs that were submitted on this machine, newest first: of all namespaces and names, or
    of some.

    How they ended is known of those that `run` or `delete` saw the end of. Asks no cluster.
    """
    return list(itertools.islice(pasts(records_folder(), name, namespace), limit))
