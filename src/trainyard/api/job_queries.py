"""Where jobs stand, what they write, and what runs in their replicas."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from trainyard.api.connection import Connection, JobName, Jobs
from trainyard.api.errors import JobFailed, WaitTimeout
from trainyard.api.job_logs import Grow, LogLines, Note, read_logs
from trainyard.api.options import several, words
from trainyard.client import job_waiting
from trainyard.client.cluster_target import CommandError
from trainyard.client.job_events import event_order as event_order
from trainyard.client.job_events import events_of, follow_events
from trainyard.client.job_lookup import kind_named, list_jobs, pods_of
from trainyard.client.job_view import Job
from trainyard.client.job_waiting import Goal as Goal
from trainyard.client.job_waiting import Result as Result
from trainyard.client.job_waiting import parse_goal as parse_goal
from trainyard.client.log_streams import LogRequest, texts
from trainyard.client.namespace_owners import own_namespaces, owners
from trainyard.client.object_views import Object
from trainyard.client.object_watcher import watch_jobs
from trainyard.client.replica_commands import Execution, check_running, choose_pod, running_replica
from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.kinds.shared.reasons import Phase

if TYPE_CHECKING:
    from trainyard.api.diagnosis_inputs import Explanation
    from trainyard.client.exec_client import ExecStream as ExecStream

_STDERR = 2
SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash || exec sh")
"""bash where there is one, as a login through ssh would give."""


class LogLine(NamedTuple):
    """A line that a replica has written, without its end."""

    replica: str
    text: str


class Executed(NamedTuple):
    """How a command in a replica has ended, and what it wrote."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Asking(Connection):
    """What is asked about jobs."""

    async def list(
        self,
        kinds: str | Iterable[str] = (),
        *,
        selector: str = "",
        all_namespaces: bool = False,
    ) -> Jobs:
        """The jobs of the namespace, oldest first: of all kinds, or of some (`pj`), and with
        labels as `team=a`, if wished."""
        target = await self.target()
        namespace = None if all_namespaces else target.namespace
        wanted = [kind_named(kind) for kind in several(kinds)]
        return await list_jobs(target, namespace, wanted, selector)

    async def watch(
        self,
        kinds: str | Iterable[str] = (),
        *,
        selector: str = "",
        all_namespaces: bool = False,
    ) -> AsyncGenerator[Jobs]:
        """The jobs that `list` has, and then, again and again, those that have changed.

        One that was deleted comes a last time, with `is_deleted`. This never ends by itself.
        """
        wanted = [kind_named(kind) for kind in several(kinds)] or list(JOB_KINDS.values())
        names = [kind.singular for kind in wanted]
        present = await self.list(names, selector=selector, all_namespaces=all_namespaces)
        yield list(present)
        target = await self.target()
        namespace = None if all_namespaces else target.namespace
        changes = watch_jobs(target.client, wanted, namespace, selector, present)
        async with contextlib.aclosing(changes):
            async for jobs in changes:
                yield jobs

    async def get(self, job: JobName) -> Job:
        """A job as it is now, with its pods; raises JobNotFound."""
        found = await self.found(job)
        pods = await pods_of((await self.target()).client, found)
        found.pods = {pod.uid: pod for pod in pods}
        return found

    async def owners(self) -> Mapping[str, str]:
        """Whose each namespace is, where several people share a cluster; else empty."""
        return await owners(await self.target())

    async def own_namespaces(self) -> frozenset[str]:
        """The namespaces of the caller; of the owner of the cluster, all."""
        return await own_namespaces(await self.target())

    async def logs_at(self, job: JobName) -> str:
        """The folders of this machine, as a pattern, in which the logs of a job are; empty for a
        cluster elsewhere."""
        folder = (await self.target()).folder
        found = await self.found(job)
        return str(folder / "pods" / f"{found.namespace}_{found.base}-*") if folder else ""

    async def wait(self, job: JobName, until: str = "end", *, timeout: float | None = None) -> Job:
        """The job, once it has come to a point: `end` (it has succeeded), `phase=Running` or
        another, `condition=Completed` or `condition=TYPE=STATUS`.

        Raises JobFailed when it cannot come there any more, because it has failed, ended otherwise
        or was deleted, and WaitTimeout after `timeout` seconds.
        """
        goal = parse_goal(until)
        if goal.is_deletion:
            raise CommandError("a deletion is waited for by wait_until_gone()")
        outcome = await self.outcome(job, goal, timeout=timeout)
        assert outcome.job is not None
        if outcome.result is Result.MISSED:
            raise await self.failure(outcome.text, outcome.job)
        if outcome.result is Result.TIMED_OUT:
            raise WaitTimeout(outcome.text)
        return outcome.job

    async def explain(self, job: JobName) -> Explanation:
        """Why a job is pending, restarting, failed or stuck, and what to do: `causes`, the
        gravest first; of a job that has failed a `card` that says who is to blame."""
        from trainyard.api.diagnosis_inputs import explanation_of

        return await explanation_of(await self.target(), await self.found(job))

    async def failure(self, text: str, job: Job) -> JobFailed:
        """What is raised of a job that has failed, with its card if that is still to be had."""
        from trainyard.api.diagnosis_inputs import known_card

        return JobFailed(text, job, await known_card(await self.target(), job))

    async def outcome(
        self, job: JobName, goal: Goal, *, timeout: float | None = None
    ) -> job_waiting.Outcome:
        """How waiting for a goal has ended, in a number and in words."""
        target = await self.target()
        if isinstance(job, str):
            return await job_waiting.wait_for(target, job, goal, timeout)
        return await job_waiting.wait(target.client, job, goal, timeout)

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
        async with contextlib.aclosing(self.log_blocks(job, request, _warn)) as blocks:
            async for block in blocks:
                for line in texts(block.data):
                    yield LogLine(block.replica, line)

    async def log_blocks(
        self, job: JobName, request: LogRequest, note: Note, grow: Grow | None = None
    ) -> AsyncGenerator[LogLines]:
        """The same as it arrives; `note` is told what there is to know beside it, and `grow` of
        lines that are not whole yet."""
        blocks = read_logs(await self.target(), await self.found(job), request, note, grow)
        async with contextlib.aclosing(blocks):
            async for block in blocks:
                yield block

    async def events(
        self, job: JobName, *, follow: bool = False, warnings: bool = False
    ) -> AsyncGenerator[Object]:
        """The Events about a job and all that it owns, oldest first; with `follow`, also those
        to come, for as long as the caller asks; with `warnings`, no others."""
        client = (await self.target()).client
        found = await self.found(job)
        wanted = (lambda event: event.get("type") == "Warning") if warnings else lambda _: True
        if not follow:
            for event in filter(wanted, await events_of(client, found)):
                yield event
            return
        async with contextlib.aclosing(follow_events(client, found)) as events:
            async for event in events:
                if wanted(event):
                    yield event

    # In a replica.

    async def running_replica(
        self, job: JobName, *, replica: str = "", container: str = "", timeout: float = 300.0
    ) -> str:
        """The replica of this name, or that of rank 0, once its container runs.

        Raises CommandError when it never will, or not within `timeout` seconds.
        """
        target = await self.target()
        found = await self.found(job)
        pod = await running_replica(target, found, replica, container, timeout)
        return found.replica_of(pod.name)

    async def exec(
        self,
        job: JobName,
        command: str | Sequence[str],
        *,
        replica: str = "",
        container: str = "",
        stdin: bytes = b"",
    ) -> Executed:
        """Run a command in a replica, of rank 0 unless another is named, to its end.

        A text is split into words as a shell would; no shell runs it.
        """
        written: dict[bool, bytearray] = {True: bytearray(), False: bytearray()}
        entry = self.enter(
            job, command, replica=replica, container=container, stdin=bool(stdin), tty=False
        )
        async with entry as remote:
            if stdin:
                await remote.write(stdin)
                await remote.close_stdin()
            async with contextlib.aclosing(remote.output()) as chunks:
                async for stream, data in chunks:
                    written[stream == _STDERR] += data
        return Executed(remote.exit_code or 0, bytes(written[False]), bytes(written[True]))

    async def stacks(self, job: JobName, *, all_threads: bool = False) -> str:
        """Where every rank of a job stands, equal stacks once and the odd ones first: the main
        thread of each, or all. Of a job that runs no more, what was kept when it hung.

        Raises CommandError where there are none.
        """
        from trainyard.client.rank_stacks import collect, kept

        target, found = await self.target(), await self.found(job)
        if text := await collect(target, found, all_threads=all_threads):
            return text
        if text := await kept(target.client, found):
            return text
        if found.phase in (Phase.SUCCEEDED, Phase.FAILED):
            why = f"it has ended ({found.phase}), and only those of a hang are kept"
        else:
            why = "no Python program runs in its pods"
        raise CommandError(f"no process of {found} can be asked for its stacks: {why}")

    @asynccontextmanager
    async def enter(
        self,
        job: JobName,
        command: str | Sequence[str] = (),
        *,
        replica: str = "",
        container: str = "",
        stdin: bool = True,
        tty: bool = False,
    ) -> AsyncIterator[ExecStream]:
        """A command in a replica, or a shell, connected to whoever enters."""
        from trainyard.client.exec_client import run_in_container

        target = await self.target()
        found = await self.found(job)
        pod = choose_pod(found, await pods_of(target.client, found), replica)
        chosen = container or found.training_container(pod)
        check_running(found, pod, chosen)
        wanted = Execution(pod, chosen, words(command) or SHELL, stdin, tty)
        async with run_in_container(target, wanted) as remote:
            yield remote


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)
