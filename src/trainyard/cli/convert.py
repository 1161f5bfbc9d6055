"""``trainyard convert``: old spellings to today's, comments kept; jobs of other systems to ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainyard.cli.options import files_option
from trainyard.schema.errors import TrainyardError
from trainyard.schema.problems import Severity

if TYPE_CHECKING:
    from trainyard.manifest.foreign.converting import Foreign


@click.command()
@files_option("A manifest, - for standard input; may be repeated.")
@click.option("-i", "--in-place", is_flag=True, help="Write the files themselves.")
def command(files: tuple[str, ...], in_place: bool) -> None:
    """Rewrite manifests in today's spelling, or jobs of other systems as jobs of ours.

    Of our own manifests comments, order and line ends are kept. Read as well: Kubeflow's
    PyTorchJob, MPIJob and TrainJob (with its runtime, where that is in the file), Volcano's Job,
    and a script for Slurm's sbatch. Every field that has no counterpart is told.
    """
    from trainyard.manifest.conversion import convert
    from trainyard.manifest.foreign.converting import convert as convert_foreign
    from trainyard.manifest.reader import STANDARD_INPUT, read_text, shown_name

    if in_place and STANDARD_INPUT in files:
        raise click.UsageError("--in-place needs a file")
    for number, name in enumerate(files):
        text = read_text(name)
        foreign = convert_foreign(text, shown_name(name))
        if foreign is not None:
            _tell(foreign, number, in_place=in_place, name=name)
            continue
        converted = convert(text, shown_name(name))
        for change in converted.changes:
            click.echo(str(change), err=True)
        if in_place:
            if converted.text != text:
                _write(name, converted.text)
            continue
        if number:
            click.echo("---")
        click.echo(converted.text.encode(), nl=False)


def _tell(foreign: Foreign, number: int, *, in_place: bool, name: str) -> None:
    """Print the manifest, and then what is to be known of it; what is wrong with it too."""
    from trainyard.manifest.reader import read

    if in_place:
        raise click.UsageError(
            f"{name} holds jobs of another system: write a file of its own, -f {name} > FILE"
        )
    for note in foreign.notes:
        click.echo(str(note), err=True)
    if number:
        click.echo("---")
    click.echo(foreign.text, nl=False)
    found = read(foreign.text, "the result").problems
    for problem in found:
        click.echo(str(problem), err=True)
    if any(problem.severity is Severity.ERROR for problem in found):
        raise SystemExit(1)


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_bytes(text.encode())
    except OSError as problem:
        reason = (problem.strerror or "unwritable").lower()
        raise TrainyardError(f"cannot write {name}: {reason}") from problem
