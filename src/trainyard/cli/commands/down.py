"""`trainyard down`: end the background cluster, and every process it started."""

from __future__ import annotations

import click

from trainyard.composition.cluster_shutdown import end_cluster
from trainyard.machine.state_folder import Paths, state_folder
from trainyard.schema.errors import TrainyardError


@click.command()
def command() -> None:
    """End the embedded cluster and everything that runs in it."""
    paths = Paths(state_folder())
    if not end_cluster(paths):
        raise TrainyardError(f"no cluster is up in {paths.folder}; start one with: trainyard up")
    click.echo("the cluster is down")
