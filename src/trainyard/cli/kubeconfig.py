"""`trainyard kubeconfig`: where kubectl finds the embedded cluster."""

from __future__ import annotations

import click

from trainyard.api.errors import TrainyardError
from trainyard.local.state import Paths, find_cluster, state_folder


@click.command()
def command() -> None:
    """Print the path of the embedded cluster's kubeconfig.

    For example: export KUBECONFIG=$(trainyard kubeconfig)
    """
    paths = Paths(state_folder())
    found = find_cluster(paths.folder)
    if found is None or not found.port:
        raise TrainyardError(f"no cluster is up in {paths.folder}; start one with: trainyard up")
    click.echo(paths.kubeconfig)
