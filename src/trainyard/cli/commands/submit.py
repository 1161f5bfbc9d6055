"""`trainyard submit`: put a manifest's jobs into a cluster and leave them to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from trainyard.api.async_client import AsyncClient
from trainyard.api.commands import Where, ask
from trainyard.api.job_changes import copy_of, empty_claims, names_in
from trainyard.api.views import Job
from trainyard.cli.job_options import with_where
from trainyard.cli.manifest_input import read_jobs
from trainyard.cli.options import folder_options, manifests, snapshot_option

if TYPE_CHECKING:
    from trainyard.manifest.reader import ReadResult

_REPLACE_SECONDS = 300.0


@click.command()
@with_where
@manifests
@click.option(
    "--replace",
    "replaces",
    is_flag=True,
    help="Delete jobs of the same name first, and wait until they and their pods are gone.",
)
@click.option("-o", "--output", type=click.Choice(["name"]), help="Print kind and name only.")
@folder_options
@snapshot_option
def command(
    where: Where,
    files: tuple[str, ...],
    replaces: bool,
    output: str | None,
    volumes: dict[str, str],
    images: tuple[tuple[str, str], ...],
    snapshots: bool,
) -> None:
    """Create the jobs of manifests, and before them the Secrets, claims and so on beside them.

    On the embedded cluster --volume says for good which folder stands for a claim of the jobs'
    namespaces, and --image holds for these jobs; both come before what `up` was told.
    """
    if (volumes or images) and (where.kubeconfig or where.context):
        raise click.UsageError("on a cluster no folder of this machine stands for a claim or image")
    # Everything is read before anything is created.
    results = [read_jobs(file, where.namespace) for file in files]

    async def submit(client: AsyncClient) -> None:
        if replaces:
            await _delete(client, results)
        for result in results:
            jobs = await client.submit(result, volumes=volumes, images=images, snapshot=snapshots)
            _print_created(jobs, names_only=output == "name")
            for text in await empty_claims(await client.target(), jobs):
                click.echo(f"warning: {text}", err=True)

    ask(where, submit)


async def _delete(client: AsyncClient, results: Sequence[ReadResult]) -> None:
    names = [name for result in results for name in names_in(result)]
    old = await client.delete(names, missing_ok=True)
    for job in old:
        click.echo(f"{job} deleted")
    await client.wait_until_gone(old, timeout=_REPLACE_SECONDS)


def _print_created(jobs: Sequence[Job], *, names_only: bool) -> None:
    for job in jobs:
        click.echo(job.full_name if names_only else f"{job} created")
    if jobs and (copied := copy_of(jobs[0])):
        click.echo(f"code: {copied}", err=True)
