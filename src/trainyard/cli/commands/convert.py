"""``trainyard convert``: old spellings to today's, comments kept; jobs of other systems to ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from trainyard.cli.options import manifests
from trainyard.schema.errors import TrainyardError
from trainyard.schema.problems import Problem, Severity


@click.command()
@manifests
@click.option("-i", "--in-place", is_flag=True, help="Write the files themselves.")
def command(files: tuple[str, ...], in_place: bool) -> None:
    """Rewrite manifests in today's spelling, or jobs of other systems as jobs of ours.

    Of our own manifests comments, order and line ends are kept. Read as well: Kubeflow's
    PyTorchJob, TFJob, JAXJob, XGBoostJob, MPIJob and TrainJob (with its runtime, where that is in
    the file), JobSet, Kubernetes' Job, Volcano's Job, what torchx run --dryrun shows of it, and a
    script for Slurm's sbatch. Every field that has no counterpart is told.
    """
    from trainyard.api.offline import converted
    from trainyard.manifest.reader import STANDARD_INPUT, read_text, shown_name

    if in_place and STANDARD_INPUT in files:
        raise click.UsageError("--in-place needs a file")
    for number, name in enumerate(files):
        text = read_text(name)
        found = converted(text, shown_name(name))
        if in_place and found.is_foreign:
            raise click.UsageError(
                f"{name} holds jobs of another system: write a file of its own, -f {name} > FILE"
            )
        for note in found.notes:
            click.echo(str(note), err=True)
        if not in_place:
            if number:
                click.echo("---")
            click.echo(found.text.encode(), nl=False)
        elif found.text != text:
            _write(name, found.text)
        _print_problems(found.problems)


def _print_problems(problems: Sequence[Problem]) -> None:
    """Print the problems of a job that was converted from another system."""
    for problem in problems:
        click.echo(str(problem), err=True)
    if any(problem.severity is Severity.ERROR for problem in problems):
        raise SystemExit(1)


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_bytes(text.encode())
    except OSError as problem:
        reason = (problem.strerror or "unwritable").lower()
        raise TrainyardError(f"cannot write {name}: {reason}") from problem
