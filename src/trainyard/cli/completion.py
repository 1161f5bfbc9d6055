"""Shell completion: the script that a shell needs, and the names of jobs for it."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

_PROGRAM, _VARIABLE = "trainyard", "_TRAINYARD_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> None:
    """Print the script that completes commands, options and job names in SHELL.

    For bash, add `source <(trainyard completion bash)` to ~/.bashrc; for zsh, the like to ~/.zshrc;
    for fish, `trainyard completion fish | source` to ~/.config/fish/config.fish.
    """
    from trainyard.cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    click.echo(kind(cli, {}, _PROGRAM, _VARIABLE).source())


def jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The jobs of the chosen namespace; none where there is no cluster to ask."""
    from trainyard.client.jobs import list_jobs
    from trainyard.client.target import Target, Where
    from trainyard.schema.errors import TrainyardError

    async def names(target: Target) -> list[str]:
        return [job.name for job in await list_jobs(target, target.namespace)]

    chosen = (ctx.params.get(name) for name in ("namespace", "kubeconfig", "context"))
    try:
        found = Where(*chosen).run(names)
    except TrainyardError:
        return []
    return [CompletionItem(name) for name in dict.fromkeys(found) if name.startswith(incomplete)]
