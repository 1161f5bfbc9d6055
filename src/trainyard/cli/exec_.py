"""`trainyard exec`: a command, or a shell, in a replica of a job."""

from __future__ import annotations

import sys

import click

from trainyard.cli.target import (
    container_option,
    job_argument,
    job_command,
    replica_option,
    with_where,
    words_argument,
)
from trainyard.client.jobs import find, pods_of
from trainyard.client.replicas import Execution, check_running, choose_pod
from trainyard.client.target import CommandError, Target, Where

SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash || exec sh")
"""bash where there is one, as a login through ssh would give."""


@job_command
@with_where
@replica_option
@container_option
@click.option("-i/-I", "--stdin/--no-stdin", default=True, help="Pass standard input on.")
@click.option(
    "-t/-T", "--tty/--no-tty", default=None, help="A terminal for the command, or none for it."
)
@job_argument
@words_argument
def command(
    where: Where,
    job: str,
    words: tuple[str, ...],
    replica: str,
    container: str,
    stdin: bool,
    tty: bool | None,
) -> int:
    """Run a command in a replica of a job; without one, a shell.

    On a terminal the command gets a terminal too; else its standard streams are pipes. The exit
    code is the command's.
    """
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if tty and not sys.stdin.isatty():
        raise CommandError("there is no terminal here to connect; leave out --tty")
    is_terminal = stdin and (has_terminal if tty is None else tty)

    async def enter(target: Target) -> int:
        found = await find(target, job)
        pod = choose_pod(found, await pods_of(target.client, found), replica)
        chosen = container or found.training_container(pod)
        check_running(found, pod, chosen)
        return await connect(target, Execution(pod, chosen, words or SHELL, stdin, is_terminal))

    return where.run(enter)


async def connect(target: Target, wanted: Execution) -> int:
    """Run the command with this process's standard streams; returns its exit code."""
    from trainyard.cli.terminal import attach
    from trainyard.client.streams import run_in_container

    async with run_in_container(target, wanted) as remote:
        return await attach(remote, stdin=wanted.stdin, is_terminal=wanted.tty)
