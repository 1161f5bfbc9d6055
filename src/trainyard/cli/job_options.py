"""Options and arguments that commands about jobs share: which API server, and which jobs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from trainyard.api.async_client import AsyncClient
from trainyard.api.commands import Where, ask
from trainyard.cli.options import where_options
from trainyard.kinds.kind_registry import JOB_KINDS
from trainyard.schema.errors import TrainyardError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Function = Callable[..., Any]


def complete_job_names(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the names of jobs in the chosen namespace; none without a cluster to ask."""

    from click.shell_completion import CompletionItem

    async def names(client: AsyncClient) -> list[str]:
        return [job.name for job in await client.list()]

    chosen = (ctx.params.get(name) for name in ("namespace", "kubeconfig", "context"))
    try:
        found = ask(Where(*chosen), names)
    except TrainyardError:
        return []
    return [CompletionItem(name) for name in dict.fromkeys(found) if name.startswith(incomplete)]


job_argument = click.argument("job", shell_complete=complete_job_names)
jobs_argument = click.argument(
    "jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=complete_job_names
)
replica_option = click.option(
    "-r", "--replica", default="", metavar="NAME", help="Not rank 0 but this one: worker-1."
)
container_option = click.option(
    "-c", "--container", default="", metavar="NAME", help="Not the training container."
)
command_argument = click.argument(
    "words", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED
)


def with_where(function: Function) -> Function:
    """Add -n, --kubeconfig and --context; the command takes them as `where`, a `Where`."""

    @where_options
    @functools.wraps(function)
    def command(place: tuple[str | None, str | None, str | None], **rest: Any) -> Any:
        return function(where=Where(*place), **rest)

    return command


def on_client(function: Callable[..., Awaitable[Any]]) -> Function:
    """Add the same options; the coroutine takes a connected `client`."""

    @functools.wraps(function)
    def command(where: Where, **rest: Any) -> Any:
        return ask(where, lambda client: function(client=client, **rest))

    return with_where(command)


def on_job(function: Callable[..., Awaitable[Any]]) -> click.Command:
    """Make a command about one job; the coroutine takes it as `job`, beside `client`."""

    @job_argument
    @functools.wraps(function)
    async def command(client: AsyncClient, job: str, **rest: Any) -> Any:
        return await function(client=client, job=await client.found(job), **rest)

    return job_command(on_client(command))


def job_command(function: Function) -> click.Command:
    """Make a command whose help is the function's docstring and how a JOB is named."""
    short = ", ".join(name for kind in JOB_KINDS.values() for name in kind.short_names)
    named = f"JOB is a name, or kind/name where two kinds share it (short names: {short})."
    return click.command(help=f"{inspect.getdoc(function)}\n\n{named}")(function)
