"""The asynchronous client: every action on jobs, as `await`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import warnings
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace as replaced
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, Unpack, overload

from trainyard.api import calls
from trainyard.api.capture import capture
from trainyard.api.connection import Connection
from trainyard.api.errors import JobFailed, WaitTimeout
from trainyard.api.logs import read_logs
from trainyard.api.manifests import Manifest, read_manifest
from trainyard.api.running import Function, RunOptions, follow
from trainyard.api.screens import PlainScreen
from trainyard.client import changes, waiting
from trainyard.client.changes import Named
from trainyard.client.follower import Screen
from trainyard.client.job import Job
from trainyard.client.jobs import JobNotFound, find, together
from trainyard.client.logs import LogRequest, texts
from trainyard.client.submission import StandIns, submit
from trainyard.client.target import CommandError
from trainyard.manifest.reader import ReadResult

T = TypeVar("T")
JobName = str | Job
"""A job's name, `kind/name` where two kinds share it, or the job itself."""


class LogLine(NamedTuple):
    """A line that a replica has written, without its end."""

    replica: str
    text: str


class AsyncClient(Connection):
    """Jobs of one cluster: the embedded one, or one of a kubeconfig.

    `cluster` says which embedded one: `running`, the one that is up; `background`, the same,
    started if none is; `private`, one that ends with this client; `any`, the one that is up, else
    a private one. With `kubeconfig` or `context` it is that cluster instead. `namespace` is the one
    in which jobs are that name none. The connection is made by the first call, and ended by
    `close()`, or by the end of an `async with`.
    """

    # Jobs come and go.

    async def submit(
        self,
        manifest: Manifest | Iterable[Manifest] | ReadResult,
        *,
        replace: bool = False,
        volumes: Mapping[str, str] = MappingProxyType({}),
        images: Sequence[tuple[str, str]] = (),
    ) -> list[Job]:
        """Create the jobs of a manifest, and before them what lies beside them there.

        With `replace`, jobs of the same names are deleted first. On the embedded cluster `volumes`
        are folders that stand for claims, by the claim, and `images` pairs of a pattern of images
        and the Python environment that stands for them. Raises InvalidManifest with every problem;
        warnings are told by Python's `warnings`.
        """
        read = read_manifest(manifest).require_jobs()
        if not isinstance(manifest, ReadResult):  # whose reader has told them
            for problem in read.warnings:
                warnings.warn(str(problem), stacklevel=2)
        target = await self.target()
        if replace:
            old = await self.delete(changes.names_in(read), missing_ok=True)
            await self.wait_until_gone(old)
        stand_ins = StandIns(volumes, tuple(images), self._python)
        return await submit(target, read.documents, stand_ins)

    async def delete(
        self, jobs: JobName | Iterable[JobName | Named], *, missing_ok: bool = False
    ) -> list[Job]:
        """Delete jobs, and with them all that they own; they may take their time to end.

        Raises JobNotFound, and deletes none, if one does not exist, unless `missing_ok`.
        """
        found = []
        for job in [jobs] if isinstance(jobs, str | Job) else jobs:
            try:
                found.append(await self._find(job))
            except JobNotFound:
                if not missing_ok:
                    raise
        client = (await self.target()).client
        await together([changes.delete(client, job) for job in found])
        return found

    async def wait_until_gone(
        self, jobs: Job | Iterable[Job], *, timeout: float | None = 300.0
    ) -> None:
        """Until deleted jobs and all of their pods are gone; raises WaitTimeout after `timeout`
        seconds."""
        client = (await self.target()).client
        jobs = [jobs] if isinstance(jobs, Job) else list(jobs)
        try:
            async with asyncio.timeout(timeout):
                await together([changes.until_gone(client, job) for job in jobs])
        except TimeoutError:
            raise WaitTimeout(
                f"not everything is gone after {timeout:g} s; `trainyard explain` of a job that is "
                "left, or `trainyard events`, tells what it waits for"
            ) from None

    # What becomes of them.

    async def wait(self, job: JobName, until: str = "end", *, timeout: float | None = None) -> Job:
        """The job, once it has come to a point: `end` (it has succeeded), `phase=Running` or
        another, `condition=Completed` or `condition=TYPE=STATUS`.

        Raises JobFailed when it cannot come there any more, because it has failed, ended otherwise
        or was deleted, and WaitTimeout after `timeout` seconds.
        """
        goal = waiting.parse_goal(until)
        if goal.is_deletion:
            raise CommandError("a deletion is waited for by wait_until_gone()")
        outcome = await self.outcome(job, goal, timeout=timeout)
        assert outcome.job is not None
        if outcome.result is waiting.Result.MISSED:
            raise JobFailed(outcome.text, outcome.job)
        if outcome.result is waiting.Result.TIMED_OUT:
            raise WaitTimeout(outcome.text)
        return outcome.job

    async def outcome(
        self, job: JobName, goal: waiting.Goal, *, timeout: float | None = None
    ) -> waiting.Outcome:
        """How waiting for a goal has ended, in a number and in words."""
        target = await self.target()
        if isinstance(job, str):
            return await waiting.wait_for(target, job, goal, timeout)
        return await waiting.wait(target.client, job, goal, timeout)

    async def logs(
        self,
        job: JobName,
        *,
        follow: bool = False,
        replica: str = "",
        container: str = "",
        tail: int | None = None,
        since: float | None = None,
        previous: bool = False,
        timestamps: bool = False,
    ) -> AsyncGenerator[LogLine]:
        """The lines that the replicas have written; with `follow`, until the job has ended.

        Of one `replica` (`worker-0`) and `container` or of all that train; the last `tail` lines,
        or those of the last `since` seconds; with `previous` of the attempt before.
        """
        request = LogRequest(
            follow=follow,
            replica=replica,
            container=container,
            tail=tail,
            since_seconds=None if since is None else max(1, round(since)),
            previous=previous,
            timestamps=timestamps,
        )
        blocks = read_logs(await self.target(), await self._find(job), request, _warn)
        async with contextlib.aclosing(blocks):
            async for block in blocks:
                for line in texts(block.data):
                    yield LogLine(block.replica, line)

    # From submission to the end.

    @overload
    async def run(
        self,
        what: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        screen: Screen | None = None,
        **options: Unpack[RunOptions],
    ) -> T: ...

    @overload
    async def run(
        self,
        what: Manifest | Iterable[Manifest],
        *,
        keep: bool = False,
        screen: Screen | None = None,
    ) -> list[Job]: ...

    async def run(
        self,
        what: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        keep: bool = False,
        screen: Screen | None = None,
        **options: Unpack[RunOptions],
    ) -> Any:
        """Run a function on replicas, or the jobs of a manifest, showing what they write.

        Of a function, what it returns on rank 0: it is called with `args` and `kwargs` in every
        process of a job, shaped by `options`. Its source goes there, with what it uses of the place
        where it is defined; arguments and results go by pickle. What it raises in a replica is
        raised here, with the traceback there as its cause; JobFailed where a replica ended without
        a word, and CaptureError where it cannot be carried.

        Of a manifest, its jobs, once all have succeeded; JobFailed where one has not. They are
        deleted at the end, unless `keep`, and when this is cancelled.
        """
        if callable(what):
            return await self._call(what, args, kwargs, screen, options)
        if args or kwargs or options:
            raise CommandError("arguments and options of a run are those of functions")
        return await self._run(what, screen, keep=keep)

    async def _run(
        self, manifest: Manifest | Iterable[Manifest], screen: Screen | None, *, keep: bool
    ) -> list[Job]:
        read = read_manifest(manifest).require_jobs()
        screen = screen or PlainScreen(names_jobs=len(read.jobs) > 1)
        target = await self.target()
        jobs = await follow(
            target, read.documents, screen, StandIns(python=self._python), keep=keep
        )
        for job in jobs:
            if job.phase not in ("Succeeded", "Paused"):
                raise JobFailed(_how(job), job)
        return jobs

    async def _call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        screen: Screen | None,
        options: RunOptions,
    ) -> Any:
        captured = capture(function, args, kwargs)
        target = await self.target()
        call = Function(function, captured, target)
        try:
            read = read_manifest(call.document(options, sys.executable)).require_jobs()
            shown = call.screen(screen or PlainScreen(names_jobs=False))
            stand_ins = StandIns(python=sys.executable)
            (job,) = await follow(target, read.documents, shown, stand_ins, keep=False)
            return calls.result(call.way, job, _how(job))
        finally:
            call.way.close()

    async def _find(self, job: JobName | Named) -> Job:
        """The job as it is now."""
        target = await self.target()
        if isinstance(job, Job):
            job = Named(f"{job.kind.singular}/{job.name}", job.namespace)
        if isinstance(job, Named):
            here = replaced(target, namespace=job.namespace or target.namespace)
            return await find(here, job.text)
        return await find(target, job)


def _how(job: Job) -> str:
    """How a job has ended that has not succeeded."""
    if job.is_deleted:
        return f"{job} was deleted"
    return f"{job}: Failed: {job.failure}" if job.failure else f"{job}: {job.phase}"


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)
