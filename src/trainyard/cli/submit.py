"""`trainyard submit`: put a manifest's jobs into a cluster and leave them to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from trainyard.cli.options import files_option
from trainyard.cli.reading import read_jobs
from trainyard.cli.target import with_where
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
def command(where: Where, files: tuple[str, ...], replaces: bool, output: str | None) -> None:
    """Create the jobs of manifests, and before them the Secrets, claims and so on beside them."""
    # Everything is read before anything is created.
    results = [read_jobs(file, where.namespace) for file in files]
    names_only = output == "name"
    where.run(lambda target: _submit(target, results, replaces, names_only))


async def _submit(
    target: Target, results: Sequence[ReadResult], replaces: bool, names_only: bool
) -> None:
    from trainyard.client.submission import submit

    if replaces:
        from trainyard.cli.delete import delete_jobs
        from trainyard.client.changes import names_in

        old = [name for result in results for name in names_in(result)]
        await delete_jobs(target, old, _REPLACE_SECONDS, lenient=True)
    for result in results:
        for job in await submit(target, result.documents):
            click.echo(job.full_name if names_only else f"{job} created")
