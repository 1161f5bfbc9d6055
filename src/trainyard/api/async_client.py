"""The asynchronous client: every action on jobs, as `await`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar, Unpack, overload

from trainyard.api.connection import Jobs
from trainyard.api.job_changes import Changing
from trainyard.api.job_following import followed
from trainyard.api.job_manifests import Manifest, check_commands, read_to_submit
from trainyard.api.job_queries import Asking
from trainyard.api.notebook import chosen
from trainyard.api.options import RunOptions, ScriptOptions, check, several
from trainyard.api.queues import Queues
from trainyard.api.recorded_jobs import OF_FUNCTION, Repeating
from trainyard.api.replica_usage import Measuring
from trainyard.api.scripts.script_jobs import drafted, is_script
from trainyard.client.cluster_target import CommandError
from trainyard.client.job_follower import Screen
from trainyard.client.job_view import Job
from trainyard.client.provenance import SubmissionContext
from trainyard.client.submission import StandIns

T = TypeVar("T")


class AsyncClient(Changing, Asking, Measuring, Repeating, Queues):
    """Jobs of one cluster: the embedded one, or one of a kubeconfig.

    `cluster` says which embedded one: `running`, the one that is up; `background`, the same,
    started if none is; `private`, one that ends with this client; `any`, the one that is up, else
    a private one; `options` shape one that is started. With `kubeconfig` or `context` it is that
    cluster instead. `namespace` is the one in which jobs are that name none. The connection is made
    by the first call, and ended by `close()`, or by the end of an `async with`.
    """

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
        args: Sequence[Any] = (),
        *,
        keep: bool = False,
        snapshot: bool = False,
        screen: Screen | None = None,
        **options: Unpack[ScriptOptions],
    ) -> Jobs: ...

    async def run(
        self,
        what: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        keep: bool = False,
        snapshot: bool = False,
        screen: Screen | None = None,
        **options: Unpack[ScriptOptions],
    ) -> Any:
        """Run a function or a script on replicas, or the jobs of a manifest, and show what they
        write.

        Of a function, what it returns on rank 0: it is called with `args` and `kwargs` in every
        process of a job, shaped by `options`; a text as `args` is one argument. Its source goes
        there, with what it uses of the place where it is defined; arguments and results go by
        pickle. What it raises in a replica is raised here, with the traceback there as its cause;
        JobFailed where a replica ended without a word, and CaptureError where it cannot be carried.

        Of a script, the path of a `.py` or `.sh` file, the job that `trainyard init` proposes for
        it with `args` and `options`; a text as `args` is split into words as a shell would. Of a
        manifest, its jobs. These are what is returned, once all have succeeded; JobFailed is raised
        where one has not. They are deleted at the end, unless `keep`, and when this is cancelled;
        with `snapshot` they run a copy of the code of their working folder. With `module` the
        script is the name of a module.
        """
        if callable(what):
            return await self._call(what, args, kwargs, screen, options)
        if is_script(what, options):
            what = await self._drafted(what, args, options)
        elif args or kwargs or options:
            raise CommandError("arguments and options are those of functions and scripts")
        context = SubmissionContext(how="run", options=await self._shape(), snapshots=snapshot)
        return await self._run(what, screen, context, keep=keep)

    async def _drafted(self, script: Any, args: Sequence[Any], options: ScriptOptions) -> str:
        is_local = bool((await self.target()).socket)
        make = partial(
            drafted,
            script,
            args,
            options,
            self._cluster_shape if is_local else None,
            for_cluster=not is_local,
            python=self._python or "",
        )
        return (await asyncio.to_thread(make)).text()

    async def _shape(self) -> dict[str, Any]:
        """What is recorded of the embedded cluster that was started for this client."""
        await self.target()
        return asdict(self._cluster_shape) if self._own else {}

    async def _run(
        self,
        manifest: Manifest | Iterable[Manifest],
        screen: Screen | None,
        context: SubmissionContext,
        *,
        keep: bool,
    ) -> Jobs:
        read = read_to_submit(manifest)
        screen = chosen(screen, names_jobs=len(read.jobs) > 1)
        target, stand_ins = await self.target(), StandIns(python=self._python)
        if target.socket:
            check_commands(read)
        async with followed(target, read.documents, screen, stand_ins, context, keep=keep) as jobs:
            for job in jobs:
                if job.phase not in ("Succeeded", "Paused"):
                    raise await self.failure(_how(job), job)
        return jobs

    async def _call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        screen: Screen | None,
        options: RunOptions,
    ) -> Any:
        # Few call functions: every command would wait for what that takes.
        from trainyard.api import remote_calls
        from trainyard.api.function_capture import capture
        from trainyard.api.function_jobs import Function

        check(options, RunOptions)
        captured = capture(function, several(args), kwargs)
        target = await self.target()
        call = Function(function, captured, target)
        try:
            documents = read_to_submit(call.document(options, sys.executable)).documents
            shown = call.screen(chosen(screen, names_jobs=False))
            stand_ins, context = StandIns(python=sys.executable), SubmissionContext(how=OF_FUNCTION)
            async with followed(target, documents, shown, stand_ins, context, keep=False) as jobs:
                (job,) = jobs
                if job.phase == "Succeeded":
                    return remote_calls.returned(call.transport, job)
                remote_calls.raise_failure(call.transport, job)
                raise await self.failure(_how(job), job)
        finally:
            call.transport.close()


def _how(job: Job) -> str:
    """How a job has ended that has not succeeded."""
    if job.is_deleted:
        return f"{job} was deleted"
    if job.never_fits:
        return f"{job} cannot run here: {job.never_fits}"
    return f"{job}: Failed: {job.failure}" if job.failure else f"{job}: {job.phase}"
