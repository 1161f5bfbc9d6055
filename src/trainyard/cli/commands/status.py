"""`trainyard status`: whether the embedded cluster is up, what it has and what it does."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from trainyard.machine.state_folder import (
    Paths,
    RunningCluster,
    find_cluster,
    is_disk_full,
    state_folder,
    why_cluster_is_down,
)


@click.command()
def command() -> int:
    """Tell whether the embedded cluster is up. Exit code 0 when it is, 3 when not."""
    paths = Paths(state_folder())
    found = find_cluster(paths.folder)
    if found is None:
        why = why_cluster_is_down(paths)
        click.echo(f"no cluster is up in {paths.folder}" + (f"; {why}" if why else ""))
        return 3
    for line in _lines(found, paths):
        click.echo(line)
    if is_disk_full(paths.folder):
        click.echo("warning: the disk of the state folder is full; make room", err=True)
    return 0


def _lines(found: RunningCluster, paths: Paths) -> Iterator[str]:
    from trainyard.api.embedded import state_of

    state = state_of(found)
    yield (
        f"up for {_duration(time.time() - found.started)}, process {found.pid}, "
        f"isolation {found.isolation}"
    )
    yield f"version: trainyard {found.version or 'before versions were recorded'}"
    if found.runtime != found.version:
        yield f"pod runtime: trainyard {found.runtime or 'before versions were recorded'}"
    yield f"state: {paths.folder}"
    yield f"kubeconfig: {_kubeconfig(found, paths)} (port {found.port})"
    phases = ", ".join(f"{count} {phase}" for phase, count in sorted(state.jobs.items()))
    yield f"jobs: {phases or 'none'}"
    yield f"pods: {state.pods}, {state.running} running"
    for name, amounts in state.nodes.items():
        shown = ", ".join(f"{resource} {amount}" for resource, amount in amounts.items())
        yield f"node {name}: {shown}"


def _kubeconfig(found: RunningCluster, paths: Paths) -> str:
    return str(paths.kubeconfig) if found.is_ours else "yours is made by trainyard kubeconfig"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
