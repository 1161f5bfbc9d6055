"""`trainyard doctor`: what is wrong on this machine and in the embedded cluster, and what to do."""

from __future__ import annotations

import json
from typing import Any

import click

from trainyard.kube.embedded import Paths, RunningCluster, find_cluster, state_folder
from trainyard.kube.ownership import NotOurs
from trainyard.schema.errors import TrainyardError

_SIGNS = {"ok": "ok", "note": "note", "problem": "PROBLEM"}


@click.command()
@click.option("-o", "output", type=click.Choice(("text", "json")), default="text", help="Format.")
def command(output: str) -> int:
    """Say what is wrong here, and what to do. Exit code 0 if nothing is, 1 if something is."""
    from trainyard.local.doctor import Patient, examine

    paths = Paths(state_folder())
    try:
        cluster = find_cluster(paths.folder)
    except NotOurs:  # one of the checks says so
        cluster = None
    found = list(examine(Patient(paths, cluster, _told_by(cluster))))
    if output == "json":
        click.echo(json.dumps([each.tell() for each in found], indent=2))
    else:
        for each in found:
            click.echo(f"{_SIGNS[each.state]:<8}{each.check}: {each.text}")
            if each.fix:
                click.echo(f"        → {each.fix}")
    return int(any(each.state == "problem" for each in found))


def _told_by(cluster: RunningCluster | None) -> dict[str, Any]:
    """What a running cluster says of itself; nothing if it does not answer."""
    if cluster is None:
        return {}
    import uvloop

    return uvloop.run(findings(cluster))


async def findings(cluster: RunningCluster) -> dict[str, Any]:
    """What is wrong in a running cluster."""
    from trainyard.kube.client import Client
    from trainyard.kube.transport import Request

    try:
        async with Client.unix(cluster.socket) as client:
            answer = await client.raw(Request("GET", "/debug/findings"), "what is wrong")
            told: dict[str, Any] = json.loads(answer.body)
            return told
    except (TrainyardError, ValueError):
        return {}
