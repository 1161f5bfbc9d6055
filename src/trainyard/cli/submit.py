"""`trainyard submit`: put a manifest's jobs into a cluster and leave them to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from trainyard.cli.target import on_target
from trainyard.client.target import CommandError, Target, Where

if TYPE_CHECKING:
    from trainyard.manifest.reader import ReadResult

_REPLACE_SECONDS = 300.0


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
    where.run(partial(_submit, results=results, replaces=replaces, names_only=names_only))


def read_jobs(file: str, namespace: str | None) -> ReadResult:
    """A manifest with jobs; tells its warnings.

    Raises InvalidManifest, or CommandError when it is meant for another namespace than asked for.
    """
    from trainyard.manifest.reader import read_file

    result = read_file(file).require_jobs()
    for warning in result.warnings:
        click.echo(str(warning), err=True)
    for document in result.documents:
        own = (document.raw.get("metadata") or {}).get("namespace")
        if namespace and own and own != namespace:
            raise CommandError(
                f"{file}:{document.line}: the {document.kind} is meant for namespace {own}, not "
                f"{namespace}; remove one of the two"
            )
    return result


async def _submit(
    target: Target, *, results: Sequence[ReadResult], replaces: bool, names_only: bool
) -> None:
    from trainyard.client.submission import submit
    from trainyard.kinds.table import KINDS

    if replaces:
        from trainyard.cli.delete import delete_jobs, names_in

        old = [name for result in results for name in names_in(result)]
        await delete_jobs(target, jobs=old, seconds=_REPLACE_SECONDS, lenient=True)
    for result in results:
        jobs = await submit(
            target.client,
            result.documents,
            namespace=target.namespace,
            create_namespaces=bool(target.socket),
        )
        for job in jobs:
            if names_only:
                click.echo(f"{KINDS[job.kind].singular}.{KINDS[job.kind].group}/{job.name}")
            else:
                click.echo(f"{job} created")
