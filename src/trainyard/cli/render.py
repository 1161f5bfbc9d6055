"""`trainyard render`: what the controller would create for a manifest's jobs."""

from __future__ import annotations

import sys

import click
import yaml

from trainyard.cli.options import files_option


@click.command()
@files_option("A manifest; - reads stdin; may be repeated.", "--file")
def command(files: tuple[str, ...]) -> None:
    """Print the objects that the controller would create for the jobs in FILEs, as YAML.

    The hash in the names depends on the UID that a cluster gives the job, so it is another there.
    """
    from trainyard.kinds.shared.settings import Settings
    from trainyard.kinds.shared.workload import objects
    from trainyard.kinds.table import describe
    from trainyard.manifest.reader import read_file

    results = [read_file(file).require_jobs() for file in files]
    for problem in (p for result in results for p in result.warnings):
        print(problem, file=sys.stderr)
    for job in (job for result in results for job in result.jobs):
        for manifest in objects(describe(job, Settings())):
            click.echo("---")
            click.echo(yaml.dump(manifest, Dumper=_PlainDumper, sort_keys=False), nl=False)


class _PlainDumper(yaml.SafeDumper):
    """Never writes anchors: pods share parts of their template."""

    def ignore_aliases(self, data: object) -> bool:
        return True
