"""`trainyard debug`: a job without its training, and a shell in one of its replicas."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from trainyard.api.async_client import AsyncClient
from trainyard.api.commands import Where, ask
from trainyard.api.errors import CommandError
from trainyard.api.views import Job
from trainyard.cli.job_options import command_argument, container_option, replica_option, with_where
from trainyard.cli.manifest_input import read_jobs
from trainyard.manifest.reader import Document, ReadResult


@click.command()
@with_where
@click.option("-f", "--filename", "file", required=True, metavar="FILE", help="The manifest.")
@click.option("--job", default="", metavar="NAME", help="Which job, where the file has several.")
@replica_option
@container_option
@click.option(
    "--timeout",
    default=300.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="How long to wait for the replica to run.",
)
@click.option("--rm", is_flag=True, help="Delete the job when the shell ends.")
@command_argument
def command(
    where: Where,
    file: str,
    job: str,
    replica: str,
    container: str,
    timeout: float,
    rm: bool,
    words: tuple[str, ...],
) -> int:
    """Create a manifest's job in debug mode and open a shell, or run COMMAND, in a replica.

    The replicas get their environment, hostfile, keys and peers as always, but wait instead of
    training. Without a terminal and a command, only the job is created.
    """
    result = read_jobs(file, where.namespace)
    chosen = choose_job(result.documents, job)
    others = [document for document in result.documents if not document.is_job]

    async def debug(client: AsyncClient) -> int:
        (created,) = await client.submit(ReadResult((*others, chosen), ()), debug=True)
        click.echo(f"{created} created in debug mode; waiting for its replicas", err=True)
        try:
            found = await client.running_replica(
                created, replica=replica, container=container, timeout=timeout
            )
            if words or (sys.stdin.isatty() and sys.stdout.isatty()):
                return await _open_shell(client, created, found, container, words)
            click.echo(f"replica {found} is running", err=True)
            return 0
        finally:
            await _finish(client, created, deletes=rm)

    return ask(where, debug)


async def _open_shell(
    client: AsyncClient, job: Job, replica: str, container: str, words: Sequence[str]
) -> int:
    from trainyard.cli.terminal import attach

    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    entry = client.enter(job, words, replica=replica, container=container, tty=has_terminal)
    async with entry as remote:
        return await attach(remote, stdin=True, is_terminal=has_terminal)


async def _finish(client: AsyncClient, job: Job, *, deletes: bool) -> None:
    if deletes:
        await client.delete(job)
        click.echo(f"{job} deleted", err=True)
        return
    about = f"{job.name} {(await client.target()).options(job.namespace)}".rstrip()
    click.echo(
        f"{job} stays in debug mode: `trainyard exec {about}` enters it, "
        f"`trainyard delete {about}` ends it",
        err=True,
    )


def choose_job(documents: Sequence[Document], name: str) -> Document:
    """The job to debug; CommandError unless it is clear which one."""
    jobs = [document for document in documents if document.is_job]
    named = {str((job.raw.get("metadata") or {}).get("name", "")): job for job in jobs}
    if name:
        if name in named:
            return named[name]
        raise CommandError(f"there is no job {name} in the file; it has {', '.join(named)}")
    if len(jobs) > 1:
        raise CommandError(f"the file has {len(jobs)} jobs; choose by --job: {', '.join(named)}")
    return jobs[0]
