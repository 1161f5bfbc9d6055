"""`trainyard render`: what the controller would create for a manifest's jobs."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import yaml

from trainyard.api.job_manifests import read_manifest
from trainyard.api.offline import render
from trainyard.cli.options import manifests


@click.command()
@manifests
def command(files: tuple[str, ...]) -> None:
    """Print the objects that the controller would create for the jobs in FILEs, as YAML.

    The hash in the names depends on the UID that a cluster gives the job, so it is another there.
    """
    results = [read_manifest(Path(file)).require_jobs() for file in files]
    for problem in (p for result in results for p in result.warnings):
        print(problem, file=sys.stderr)
    for manifest in (each for result in results for each in render(result)):
        click.echo("---")
        click.echo(yaml.dump(manifest, Dumper=_PlainDumper, sort_keys=False), nl=False)


class _PlainDumper(yaml.SafeDumper):
    """Never writes anchors: pods share parts of their template."""

    def ignore_aliases(self, data: object) -> bool:
        return True
