"""`trainyard exec`: a command, or a shell, in a replica of a job."""

from __future__ import annotations

import sys

import click

from trainyard.api.async_client import AsyncClient
from trainyard.api.commands import Where, ask
from trainyard.api.errors import CommandError
from trainyard.cli.job_options import (
    command_argument,
    container_option,
    job_argument,
    job_command,
    replica_option,
    with_where,
)


@job_command
@with_where
@replica_option
@container_option
@click.option("-i/-I", "--stdin/--no-stdin", default=True, help="Pass standard input on.")
@click.option(
    "-t/-T", "--tty/--no-tty", default=None, help="A terminal for the command, or none for it."
)
@job_argument
@command_argument
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

    from trainyard.cli.terminal import attach

    async def enter(client: AsyncClient) -> int:
        entry = client.enter(
            job, words, replica=replica, container=container, stdin=stdin, tty=is_terminal
        )
        async with entry as remote:
            return await attach(remote, stdin=stdin, is_terminal=is_terminal)

    return ask(where, enter)
