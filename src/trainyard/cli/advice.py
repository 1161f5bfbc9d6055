"""What `run` can say about a failure beyond exit code and last lines, while its cluster is up."""

from __future__ import annotations

from datetime import UTC, datetime

from trainyard import diagnosis
from trainyard.cli.format import printable
from trainyard.client.jobs import Found, events_of, pods_of
from trainyard.client.view import JobView
from trainyard.diagnosis import Situation
from trainyard.kinds.table import KINDS
from trainyard.kube.client import Client

_COMMAND = "`trainyard "
"""Advice of this kind needs the cluster, which may end with the command."""


async def advice(client: Client, job: JobView) -> list[str]:
    """Lines about why a job failed, and what to do; empty if nothing special is known."""
    found = Found(KINDS[job.kind], dict(job.raw))
    situation = Situation(
        found.obj,
        await pods_of(client, found),
        await events_of(client, found),
        now=datetime.now(UTC),
    )
    lines = []
    for cause in diagnosis.causes(situation)[:1]:
        if helpful := [text for text in cause.advice if not text.startswith(_COMMAND)]:
            lines = [f"  {cause.what}", *(f"  → {text}" for text in helpful)]
    return [printable(line) for line in lines]
