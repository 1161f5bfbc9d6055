"""`trainyard submit`: put a manifest's jobs into a cluster and leave them to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from trainyard.cli.options import files_option, folder_options
from trainyard.cli.reading import read_jobs
from trainyard.cli.target import with_where
from trainyard.client.submission import StandIns, submit
from trainyard.client.target import Target, Where

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
    where.run(lambda target: _submit(target, results, stand_ins, replaces, names_only))


async def _submit(
    target: Target,
    results: Sequence[ReadResult],
    stand_ins: StandIns,
    replaces: bool,
    names_only: bool,
) -> None:
    if replaces:
        from trainyard.cli.delete import delete_jobs
        from trainyard.client.changes import names_in

        old = [name for result in results for name in names_in(result)]
        await delete_jobs(target, old, _REPLACE_SECONDS, lenient=True)
    for result in results:
        for job in await submit(target, result.documents, stand_ins):
            click.echo(job.full_name if names_only else f"{job} created")
