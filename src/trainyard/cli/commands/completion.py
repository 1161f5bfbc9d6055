"""`trainyard completion`: the script by which a shell completes commands and names of jobs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def command(shell: str) -> None:
    """Print the script that completes commands, options and job names in SHELL.

    For bash, add `source <(trainyard completion bash)` to ~/.bashrc; for zsh, the like to ~/.zshrc;
    for fish, `trainyard completion fish | source` to ~/.config/fish/config.fish.
    """
    from trainyard.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "trainyard", "_TRAINYARD_COMPLETE").source())
