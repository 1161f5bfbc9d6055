"""`trainyard explain`: why a job is pending, restarting, failed or stuck, and what to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import click

from trainyard import diagnosis
from trainyard.cli.format import printable
from trainyard.cli.target import on_job
from trainyard.client.events import events_of
from trainyard.client.job import Job
from trainyard.client.jobs import pods_of
from trainyard.client.target import Target
from trainyard.diagnosis import Cause, Situation, launches
from trainyard.kube.client import Client, LogOptions
from trainyard.kube.embedded import is_full
from trainyard.kube.errors import KubeError

_MOST_WARNINGS = 5
_LOG_LINES = 50
_COMMAND = "`trainyard "
"""Advice of this kind needs the cluster, which may end with the command `run`."""


@on_job
@click.option("-o", "--output", type=click.Choice(["json"]), help="The causes as JSON.")
async def command(target: Target, job: Job, output: str | None) -> None:
    """Say why a job is pending, restarting, failed or stuck: the cause, how it shows, and what
    to do."""
    situation = await situation_of(target.client, job, target.folder)
    found = diagnosis.causes(situation)
    if output == "json":
        told = {"job": str(job), "phase": job.phase}
        listed = [asdict(cause) for cause in found]
        told_warnings = diagnosis.warnings(situation, found)
        click.echo(json.dumps({**told, "causes": listed, "warnings": told_warnings}, indent=2))
        return
    click.echo(render(situation, found))


async def situation_of(client: Client, job: Job, folder: Path | None) -> Situation:
    """What is known of the job by now; `folder` is the embedded cluster's, None on another."""
    found = Situation(
        job,
        await pods_of(client, job),
        await events_of(client, job),
        now=datetime.now(UTC),
        is_local=folder is not None,
        full_disk=str(folder) if folder and is_full(folder) else "",
    )
    logs = {name: await _tail(client, job, name) for name in launches.concerned(found)}
    return replace(found, logs=logs)


async def _tail(client: Client, job: Job, pod: str) -> list[str]:
    """The last lines of a pod's training container; none if they cannot be had."""
    container = job.training_container(job.pods[pod]) if pod in job.pods else None
    lines = client.logs(pod, job.namespace, container, LogOptions(tail=_LOG_LINES))
    try:
        text = b"".join([chunk async for chunk in lines]).decode(errors="replace")
    except KubeError:
        return []
    return [line for line in text.splitlines() if line.strip()]


async def advice(client: Client, job: Job, folder: Path | None) -> list[str]:
    """What `run` can say about a failure beyond exit code and last lines; empty if nothing."""
    situation = await situation_of(client, job, folder)
    lines = []
    for cause in diagnosis.causes(situation)[:1]:
        if helpful := [text for text in cause.advice if not text.startswith(_COMMAND)]:
            lines = [f"  {cause.what}", *(f"  → {text}" for text in helpful)]
    return [printable(line) for line in lines]


def render(situation: Situation, found: Sequence[Cause]) -> str:
    """The answer as text: the first cause in the headline, then what shows it and what helps."""
    lines = [diagnosis.headline(situation, list(found))]
    if found:
        lines += _details(found[0])
    for cause in found[1:]:
        lines += ["", f"Also: {cause.what}", *_details(cause)]
    if said := diagnosis.warnings(situation, found):
        lines += ["", "Warnings:", *(f"  - {text}" for text in said[-_MOST_WARNINGS:])]
    return printable("\n".join(lines))


def _details(cause: Cause) -> list[str]:
    lines = [f"    {text}" for text in cause.evidence]
    return lines + [f"  → {text}" for text in cause.advice]
