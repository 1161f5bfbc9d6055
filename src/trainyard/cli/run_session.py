"""Runs jobs for `trainyard run`: submit, follow, report, and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from trainyard.api.clusters import target_at
from trainyard.api.job_following import Run, StandIns
from trainyard.api.run_output import PlainScreen, summary, viewer_summary
from trainyard.composition import late_imports
from trainyard.composition.cluster_log import log_to
from trainyard.composition.garbage_collection import collect_garbage_again
from trainyard.machine.state_folder import Paths, StateError, find_cluster, state_folder
from trainyard.schema.dataclass import dataclass
from trainyard.schema.errors import TrainyardError

if TYPE_CHECKING:
    from trainyard.api.async_client import AsyncClient
    from trainyard.api.job_following import ClusterTarget, Screen
    from trainyard.api.views import Job
    from trainyard.cli.run_sources import Source
    from trainyard.composition.private_cluster import PrivateHost
    from trainyard.diagnosis.failure_card import FailureCard
    from trainyard.manifest.reader import Document, ReadResult

INTERRUPTED = 130
_GRACE_SECONDS = 35.0
"""Longer than a pod's default termination grace of 30 s."""
_POLL_SECONDS = 0.5
_MOST_LOGS = 4
"""So many fit into a command that is copied."""


def run_on_private_cluster(source: Source, host: PrivateHost, namespace: str | None = None) -> int:
    """Run the jobs on a cluster of their own; return the exit code."""
    import uvloop

    result = source.read(namespace)
    log_to(host.paths.log.open("a+"))
    host.pod_runtime.ready()
    collect_garbage_again()
    return uvloop.run(_alone(source, result, host, namespace))


def run_on_cluster(
    source: Source,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
    *,
    detach: bool = False,
) -> int:
    """Run the jobs on a cluster of a kubeconfig and leave them there; return the exit code."""
    from trainyard.api.commands import Where, ask

    result = source.read(namespace)
    collect_garbage_again()

    async def action(client: AsyncClient) -> int:
        target = await client.target()
        introduction = source.introduction("")
        options = f"-n {target.namespace}"
        options += f" --kubeconfig {shlex.quote(kubeconfig)}" if kubeconfig else ""
        options += f" --context {shlex.quote(context)}" if context else ""
        documents = result.documents
        run = _RunSession(
            target, source, documents, None, keeps=True, options=options, introduction=introduction
        )
        return await run.detached() if detach else await run.to_the_end(clean=False)

    return ask(Where(namespace, kubeconfig, context), action)


def run_on_background_cluster(
    source: Source, namespace: str | None = None, *, keep: bool, detach: bool = False
) -> int:
    """Run the jobs on the embedded cluster that is up; return the exit code."""
    import uvloop

    paths = Paths(state_folder())
    if os.access(paths.log, os.W_OK):  # it is not ours on a cluster of somebody else
        log_to(paths.log.open("a+"))
    result = source.read(namespace)
    collect_garbage_again()
    return uvloop.run(_on_background(source, result, namespace, keep=keep, detach=detach))


async def _alone(
    source: Source, result: ReadResult, host: PrivateHost, namespace: str | None
) -> int:
    paths = host.paths
    async with (
        host.cluster() as cluster,
        target_at(str(cluster.socket), paths.folder, namespace) as target,
    ):
        introduction = source.introduction(cluster.agent.isolation)
        hint = f"TRAINYARD_STATE_DIR={paths.folder} "
        run = _RunSession(target, source, result.documents, paths, hint, introduction=introduction)
        return await run.to_the_end(clean=False)


async def _on_background(
    source: Source, result: ReadResult, namespace: str | None, *, keep: bool, detach: bool
) -> int:
    paths = Paths(state_folder())
    cluster = find_cluster(paths.folder)
    if cluster is None:
        raise StateError("the embedded cluster has just gone; run it again: trainyard up")
    introduction = source.introduction(cluster.isolation)
    own, is_guest = namespace or cluster.namespace, not cluster.is_ours
    async with (
        target_at(cluster.socket, paths.folder, own, is_guest=is_guest) as target,
        asyncio.TaskGroup() as group,
    ):
        watching = group.create_task(_watch_for_shutdown(paths))
        try:
            options = f"-n {own}" if keep and namespace else ""
            documents = result.documents
            run = _RunSession(
                target,
                source,
                documents,
                paths,
                keeps=keep,
                options=options,
                introduction=introduction,
            )
            return await run.detached() if detach else await run.to_the_end(clean=not keep)
        finally:
            watching.cancel()


async def _watch_for_shutdown(paths: Paths) -> None:
    """Raise StateError when the cluster is brought down; one that was killed may come again."""
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        if not paths.record.exists():
            raise StateError("the embedded cluster was brought down while the job ran")


@dataclass
class _RunSession:
    """The jobs of one manifest, from submission to the summary."""

    target: ClusterTarget
    source: Source
    documents: Sequence[Document]
    paths: Paths | None
    """The state folder of the embedded cluster; None on another cluster."""
    command_prefix: str = ""
    """What users put before commands to reach a private cluster."""
    keeps: bool = False
    options: str = ""
    """The options by which commands reach the jobs that stay, where they need any."""
    introduction: Sequence[str] = ()
    """Lines that are shown before anything is submitted."""

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        self._screen = _screen(names_jobs=sum(d.is_job for d in self.documents) > 1)

    async def detached(self) -> int:
        """Submit the jobs and say how to follow them."""
        run = await self._submitted()
        for job in run.jobs:
            self._screen.note(f"{job} created; to follow it: {self._command('logs -f', job)}")
        from trainyard.api.job_changes import empty_claims

        for text in await empty_claims(self.target, run.jobs):
            self._screen.note(f"warning: {text}")
        return 0

    async def to_the_end(self, *, clean: bool) -> int:
        """Submit the jobs and follow them to their end; `clean` deletes them afterwards."""
        run = await self._submitted()
        try:
            return await self._to_the_end(run, clean=clean)
        except Exception:  # such as a pipe that nobody reads any more
            if clean:
                with contextlib.suppress(TrainyardError):
                    await run.delete()
            raise

    async def _submitted(self) -> Run:
        for line in self.introduction:
            self._screen.note(line)
        provenance = self.source.provenance(self._screen.note)
        return await Run.submitted(
            self.target,
            self.documents,
            self._screen,
            StandIns(),
            provenance,
            replaces=self.source.replaces,
        )

    def _command(self, verb: str, job: Job) -> str:
        return f"trainyard {verb} {job.name} {self.options}".rstrip()

    async def _to_the_end(self, run: Run, *, clean: bool) -> int:
        with _Interrupts() as interrupts, self._screen:
            self._explain_modes(run.jobs)
            is_interrupted = await self._follow(run, interrupts)
        run.note_ends()
        for job in run.jobs:
            if is_interrupted and self.keeps and not job.is_over:
                self._screen.note(
                    f"{job} goes on; to follow it: {self._command('logs -f', job)}; "
                    f"to end it: {self._command('delete', job)}"
                )
            else:
                await self._report(run, job, is_interrupted=is_interrupted)
        if clean and not is_interrupted:
            await run.delete()
        if is_interrupted:
            return INTERRUPTED
        return 0 if all(job.phase in ("Succeeded", "Paused") for job in run.jobs) else 1

    async def _follow(self, run: Run, interrupts: _Interrupts) -> bool:
        """Follow until all jobs are over; return whether the user interrupted them."""
        following = asyncio.create_task(run.follow())
        importing = asyncio.create_task(late_imports.import_for_report())
        try:
            if await interrupts.race(following):
                following.result()
                return False
            if self.keeps:
                return True
            self._screen.note("stopping; Ctrl-C again to stop at once")
            await run.delete()
            if not await interrupts.race(following, timeout_seconds=_GRACE_SECONDS):
                await run.kill()
            return True
        finally:
            importing.cancel()
            following.cancel()
            await asyncio.wait({following, importing})

    def _explain_modes(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if job.is_paused:
                self._screen.note(f"{job.name} is created paused: nothing runs")
            elif job.is_debugged:
                self._screen.note(
                    f"{job.name} is in debug mode: its training does not start. Open a shell in a "
                    f"replica with\n    {self.command_prefix}trainyard exec {job.name}\n"
                    "and end it with Ctrl-C here"
                )

    async def _report(self, run: Run, job: Job, *, is_interrupted: bool) -> None:
        seconds = run.over_at(job) - self._started
        logs = self.paths.pods if self.paths and os.access(self.paths.pods, os.R_OK) else None
        if is_interrupted:
            self._screen.note(f"{job.kind.kind} {job.name}: interrupted after {seconds:.1f} s")
            if logs is not None:
                self._screen.note(f"  logs: {logs}")
            return
        card = await run.card(job) if job.phase == "Failed" else None
        if card is None:
            for line in summary(job, logs, seconds=seconds):
                self._screen.note(line)
        if self.options:
            self._screen.note(f"  it stays: {self._command('delete', job)}")
        if job.viewer:
            self._screen.note(viewer_summary(job, keeps=self.keeps))
        if card is not None:  # last: it is what one has to see
            from trainyard.cli.failure_card_text import print_card

            print_card(await self._with_local_facts(run, job, card, seconds))

    async def _with_local_facts(
        self, run: Run, job: Job, card: FailureCard, seconds: float
    ) -> FailureCard:
        """Add to the card what is known here: the duration, and the command to go on with."""
        command = card.command
        if not self.keeps:  # nobody is left who could be asked
            command = await self._file_command(run, job, card)
        _, comma, restarts = card.outcome.partition(", ")
        outcome = f"Failed after {seconds:.1f} s{comma}{restarts}"
        return replace(card, outcome=outcome, command=command)

    async def _file_command(self, run: Run, job: Job, card: FailureCard) -> str:
        """A command that shows from files what that of the card asks a cluster for; "" without."""
        assert self.paths is not None
        if card.command.startswith("trainyard stacks ") and (text := await run.kept_stacks(job)):
            path = self.paths.folder / f"stacks-{job.name}.txt"
            with contextlib.suppress(OSError):  # of a cluster of somebody else
                path.write_text(text)
                return f"less {shlex.quote(str(path))}"
        if os.access(card.log, os.R_OK):
            return f"less {shlex.quote(card.log)}"
        logs = sorted(self.paths.pods.glob(f"{job.namespace}_{job.base}-*/*/*.log"))
        return f"less {shlex.join(map(str, logs[-_MOST_LOGS:]))}" if logs else ""


def _screen(*, names_jobs: bool) -> Screen:
    if sys.stdout.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown"):
        from trainyard.cli.live_screen import LiveScreen

        return LiveScreen(names_jobs=names_jobs)
    return PlainScreen(names_jobs=names_jobs)


class _Interrupts:
    """SIGINT, SIGTERM and SIGHUP, each of which ends one `race`."""

    _SIGNALS = tuple(
        getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
    )

    def __init__(self) -> None:
        self._arrived = asyncio.Event()

    def __enter__(self) -> Self:
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C ends the command
            for number in self._SIGNALS:
                asyncio.get_running_loop().add_signal_handler(number, self._arrived.set)
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(NotImplementedError):
            for number in self._SIGNALS:
                asyncio.get_running_loop().remove_signal_handler(number)

    async def race(self, task: asyncio.Task[None], *, timeout_seconds: float | None = None) -> bool:
        """Return whether the task ended before the next signal and the timeout."""
        signal_arrived = asyncio.create_task(self._arrived.wait())
        both = {task, signal_arrived}
        try:
            await asyncio.wait(both, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            signal_arrived.cancel()
            self._arrived.clear()
        return task.done()
