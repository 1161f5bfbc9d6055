"""`trainyard kubeconfig`: where kubectl finds the embedded cluster."""

from __future__ import annotations

import click

from trainyard.kube.embedded import Paths, find_cluster, state_folder
from trainyard.schema.errors import TrainyardError


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
