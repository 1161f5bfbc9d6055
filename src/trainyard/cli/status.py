"""`trainyard status`: whether the embedded cluster is up, what it has and what it does."""

from __future__ import annotations

import time
from collections import Counter

import click

from trainyard.kube.embedded import (
    Paths,
    RunningCluster,
    find_cluster,
    is_full,
    state_folder,
    why_down,
)


@click.command()
def command() -> int:
    """Tell whether the embedded cluster is up. Exit code 0 when it is, 3 when not."""
    paths = Paths(state_folder())
    found = find_cluster(paths.folder)
    if found is None:
        why = why_down(paths)
        click.echo(f"no cluster is up in {paths.folder}" + (f"; {why}" if why else ""))
        return 3
    import uvloop

    for line in uvloop.run(_describe(found, paths)):
        click.echo(line)
    if is_full(paths.folder):
        click.echo("warning: the disk of the state folder is full; make room", err=True)
    return 0


async def _describe(found: RunningCluster, paths: Paths) -> list[str]:
    from trainyard.kinds.table import JOB_KINDS
    from trainyard.kube.client import Client
    from trainyard.kube.resources import NODES, PODS

    async with Client.unix(found.socket) as client:
        nodes, _ = await client.list(NODES)
        pods, _ = await client.list(PODS)
        phases: Counter[str] = Counter()
        for kind in JOB_KINDS.values():
            jobs, _ = await client.list(kind.resource)
            phases.update((job.get("status") or {}).get("phase") or "Pending" for job in jobs)
    running = sum((pod.get("status") or {}).get("phase") == "Running" for pod in pods)
    shown = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items())) or "none"
    lines = [
        (
            f"up for {_duration(time.time() - found.started)}, process {found.pid}, "
            f"isolation {found.isolation}"
        ),
        f"state: {paths.folder}",
        f"kubeconfig: {_kubeconfig(found, paths)} (port {found.port})",
        f"jobs: {shown}",
        f"pods: {len(pods)}, {running} running",
    ]
    for node in nodes:
        amounts = (node.get("status") or {}).get("allocatable") or {}
        shown = ", ".join(f"{name} {amount}" for name, amount in amounts.items())
        lines.append(f"node {node['metadata']['name']}: {shown}")
    return lines


def _kubeconfig(found: RunningCluster, paths: Paths) -> str:
    return str(paths.kubeconfig) if found.is_ours else "yours is made by trainyard kubeconfig"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
