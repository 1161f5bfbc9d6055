"""``trainyard convert``: old spellings to today's, comments kept."""

from __future__ import annotations

from pathlib import Path

import click

from trainyard.cli.options import files_option
from trainyard.schema.errors import TrainyardError


@click.command()
@files_option("A manifest, - for standard input; may be repeated.")
@click.option("-i", "--in-place", is_flag=True, help="Write the files themselves.")
def command(files: tuple[str, ...], in_place: bool) -> None:
    """Rewrite manifests in today's spelling; comments, order and line ends are kept."""
    from trainyard.manifest.conversion import convert
    from trainyard.manifest.reader import STANDARD_INPUT, read_text, shown_name

    if in_place and STANDARD_INPUT in files:
        raise click.UsageError("--in-place needs a file")
    for number, name in enumerate(files):
        text = read_text(name)
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


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_bytes(text.encode())
    except OSError as problem:
        reason = (problem.strerror or "unwritable").lower()
        raise TrainyardError(f"cannot write {name}: {reason}") from problem
