"""`trainyard kubeconfig`: where kubectl finds the embedded cluster."""

from __future__ import annotations

import os
from pathlib import Path

import click

from trainyard.machine.state_folder import (
    Paths,
    StateError,
    find_cluster,
    own_folder,
    state_folder,
)
from trainyard.schema.errors import TrainyardError
from trainyard.schema.object_names import fnv1a64


@click.command()
@click.option(
    "--renew",
    is_flag=True,
    help="On a cluster of several people: end the tokens that you have had, and get a new one.",
)
@click.option("--user", metavar="NAME", help="With --renew, for the owner: end this user's tokens.")
def command(renew: bool, user: str | None) -> None:
    """Print the path of your kubeconfig for the embedded cluster.

    For example: export KUBECONFIG=$(trainyard kubeconfig)
    """
    paths = Paths(state_folder())
    found = find_cluster(paths.folder)
    if found is None or not found.port:
        raise TrainyardError(f"no cluster is up in {paths.folder}; start one with: trainyard up")
    if user is not None and not renew:
        raise TrainyardError("--user goes with --renew")
    from trainyard.api.embedded import kubeconfig_of, save_kubeconfig

    asked = {"renew": renew, "user": user or ""}
    if user is not None:
        kubeconfig_of(found, asked)
        click.echo(f"the tokens of {user} are worth nothing any more", err=True)
        return
    if found.is_ours and not renew:
        click.echo(paths.kubeconfig)
        return
    config = kubeconfig_of(found, asked)
    path = _own_kubeconfig(paths)
    save_kubeconfig(path, config)
    click.echo(path)


def _own_kubeconfig(paths: Paths) -> Path:
    """Where a user keeps the kubeconfig for a cluster of somebody else: among their own files."""
    own = own_folder()
    try:
        own.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        text = f"cannot write your kubeconfig to {own}: {error.strerror}; set XDG_STATE_HOME"
        raise StateError(text) from error
    return own / f"kubeconfig-{fnv1a64(os.fsencode(paths.folder)):016x}"
