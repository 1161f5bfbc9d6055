"""`trainyard submit`: put a manifest's jobs into a cluster and leave them to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from trainyard.api.aio import AsyncClient
from trainyard.cli.options import files_option, folder_options
from trainyard.cli.reading import read_jobs
from trainyard.cli.target import with_where
from trainyard.client.changes import names_in
from trainyard.client.submission import StandIns
from trainyard.client.target import Where

if TYPE_CHECKING:
    from trainyard.manifest.reader import ReadResult

_REPLACE_SECONDS = 300.0


@click.command()
@with_where
@files_option("A manifest, or - for standard input. Repeatable.")
@click.option(
    "--replace",
    "replaces",
    is_flag=True,
    help="Delete jobs of the same name first, and wait until they and their pods are gone.",
)
@click.option("-o", "--output", type=click.Choice(["name"]), help="Print kind and name only.")
@folder_options
def command(
    where: Where,
    files: tuple[str, ...],
    replaces: bool,
    output: str | None,
    volumes: dict[str, str],
    images: tuple[tuple[str, str], ...],
) -> None:
    """Create the jobs of manifests, and before them the Secrets, claims and so on beside them.

    On the embedded cluster --volume says for good which folder stands for a claim of the jobs'
    namespaces, and --image holds for these jobs; both come before what `up` was told.
    """
    if (volumes or images) and (where.kubeconfig or where.context):
        raise click.UsageError("on a cluster no folder of this machine stands for a claim or image")
    stand_ins = StandIns(volumes, images)
    # Everything is read before anything is created.
    results = [read_jobs(file, where.namespace) for file in files]
    names_only = output == "name"
    where.run(
        lambda target: _submit(AsyncClient.of(target), results, stand_ins, replaces, names_only)
    )


async def _submit(
    client: AsyncClient,
    results: Sequence[ReadResult],
    stand_ins: StandIns,
    replaces: bool,
    names_only: bool,
) -> None:
    if replaces:
        names = [name for result in results for name in names_in(result)]
        old = await client.delete(names, missing_ok=True)
        for job in old:
            click.echo(f"{job} deleted")
        await client.wait_until_gone(old, timeout=_REPLACE_SECONDS)
    for result in results:
        volumes, images = stand_ins.volumes, stand_ins.images
        for job in await client.submit(result, volumes=volumes, images=images):
            click.echo(job.full_name if names_only else f"{job} created")
