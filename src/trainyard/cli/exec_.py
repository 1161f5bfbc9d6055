"""`trainyard exec`: a command, or a shell, in a replica of a job."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

import click

from trainyard.cli import completion
from trainyard.cli.target import job_help, on_target
from trainyard.client.jobs import find, pods_of
from trainyard.client.replicas import Choice, Execution, check_running, choose_pod
from trainyard.client.target import CommandError, Target, Where

SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash || exec sh")
"""bash where there is one, as a login through ssh would give."""


@click.command(
    help="Run a command in a replica of a job; without one, a shell.\n\n"
    "On a terminal the command gets a terminal too; else its standard streams are pipes. "
    f"The exit code is the command's.\n\n{job_help()}"
)
@on_target
@click.option(
    "-r", "--replica", default="", metavar="NAME", help="Not rank 0 but this one: worker-1."
)
@click.option("-c", "--container", default="", metavar="NAME", help="Not the training container.")
@click.option("-i/-I", "--stdin/--no-stdin", default=True, help="Pass standard input on.")
@click.option(
    "-t/-T", "--tty/--no-tty", default=None, help="A terminal for the command, or none for it."
)
@click.argument("job", shell_complete=completion.jobs)
@click.argument("words", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
def command(
    where: Where,
    job: str,
    words: tuple[str, ...],
    replica: str,
    container: str,
    stdin: bool,
    tty: bool | None,
) -> int:
    """Run a command in a replica of a job."""
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if tty and not sys.stdin.isatty():
        raise CommandError("there is no terminal here to connect; leave out --tty")
    is_terminal = stdin and (has_terminal if tty is None else tty)
    choice = Choice(replica, container)
    return where.run(
        partial(_exec, name=job, choice=choice, words=words, stdin=stdin, tty=is_terminal)
    )


async def _exec(
    target: Target, *, name: str, choice: Choice, words: Sequence[str], stdin: bool, tty: bool
) -> int:
    job = await find(target, name)
    pod = choose_pod(job, await pods_of(target.client, job), choice.replica)
    container = choice.container or job.training_container(pod)
    check_running(job, pod, container)
    return await connect(target, Execution(pod, container, words or SHELL, stdin, tty))


async def connect(target: Target, wanted: Execution) -> int:
    """Run the command with this process's standard streams; returns its exit code."""
    from trainyard.cli.terminal import attach
    from trainyard.client.streams import run_in_container

    async with run_in_container(target, wanted) as remote:
        return await attach(remote, stdin=wanted.stdin, is_terminal=wanted.tty)
