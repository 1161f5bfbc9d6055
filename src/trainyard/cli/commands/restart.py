"""`trainyard restart`: another version of trainyard under replicas that run."""

from __future__ import annotations

import click

from trainyard.composition.cluster_restart import restart_cluster
from trainyard.machine.state_folder import Paths, find_cluster, state_folder
from trainyard.schema.errors import TrainyardError


@click.command()
def command() -> None:
    """Start the embedded cluster anew, and leave its jobs' replicas running.

    After an upgrade of trainyard, or a downgrade: until then the cluster that is up goes on with
    the version it was started with. It keeps its options and its folder; variables that replicas
    get are those of this shell.
    """
    paths = Paths(state_folder())
    found = find_cluster(paths.folder)
    if found is None:
        raise TrainyardError(f"no cluster is up in {paths.folder}; start one with: trainyard up")
    started = restart_cluster(found, paths, lambda text: click.echo(f"warning: {text}", err=True))
    click.echo(
        f"the cluster is up again: process {started.pid}, trainyard {started.version}, "
        f"before it {found.version or 'an earlier one'}"
    )
    if started.runtime != started.version:
        theirs = started.runtime or "before it"
        click.echo(
            f"pods are still made by the pod runtime of trainyard {theirs}, which holds those that "
            "run; a restart while none runs replaces it"
        )
