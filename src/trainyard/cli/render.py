"""`trainyard render`: what the controller would create for a manifest's jobs."""

from __future__ import annotations

import sys

import click
import yaml


@click.command()
@click.option(
    "-f",
    "--file",
    "--filename",
    "files",
    required=True,
    multiple=True,
    metavar="FILE",
    help="A manifest; - reads stdin; may be repeated.",
)
def command(files: tuple[str, ...]) -> None:
    """Print the objects that the controller would create for the jobs in FILEs, as YAML.

    The hash in the names depends on the UID that a cluster gives the job, so it is another there.
    """
    from trainyard import workloads
    from trainyard.api.reader import read_file
    from trainyard.workloads.settings import Settings

    results = [read_file(file).require_jobs() for file in files]
    for problem in (p for result in results for p in result.warnings):
        print(problem, file=sys.stderr)
    for job in (job for result in results for job in result.jobs):
        for manifest in workloads.objects(workloads.describe(job, Settings())):
            click.echo("---")
            click.echo(yaml.dump(manifest, Dumper=_PlainDumper, sort_keys=False), nl=False)


class _PlainDumper(yaml.SafeDumper):
    """Never writes anchors: pods share parts of their template."""

    def ignore_aliases(self, data: object) -> bool:
        return True
