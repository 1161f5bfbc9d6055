"""`trainyard submit`: put a manifest's jobs into a cluster and leave them to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from trainyard.cli.target import Target, Where, on_target


@click.command()
@on_target
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="A manifest, or - for standard input. Repeatable.",
)
@click.option("-o", "--output", type=click.Choice(["name"]), help="Print kind and name only.")
def command(where: Where, files: tuple[str, ...], output: str | None) -> None:
    """Create the jobs of manifests, and before them the Secrets, claims and so on beside them."""
    where.run(partial(_submit, files=files, names_only=output == "name"))


async def _submit(target: Target, *, files: Sequence[str], names_only: bool) -> None:
    from trainyard.api.kinds import KINDS
    from trainyard.api.reader import read_file
    from trainyard.cli.submission import submit

    # Everything is read before anything is created.
    results = [read_file(file).require_jobs() for file in files]
    for result in results:
        for warning in result.warnings:
            click.echo(str(warning), err=True)
    for result in results:
        for job in await submit(target.client, result.documents, namespace=target.namespace):
            if names_only:
                click.echo(f"{KINDS[job.kind].singular}.{KINDS[job.kind].group}/{job.name}")
            else:
                click.echo(f"{job} created")
