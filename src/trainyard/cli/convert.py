"""``trainyard convert``: old spellings to today's, comments kept."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from trainyard.api.errors import TrainyardError


@click.command()
@click.option(
    "-f",
    "--filename",
    "name",
    required=True,
    metavar="FILE",
    help="The manifest, - for standard input.",
)
@click.option("-i", "--in-place", is_flag=True, help="Write the file itself.")
def command(name: str, in_place: bool) -> None:
    """Rewrite a manifest in today's spelling; comments and order are kept."""
    from trainyard.api.conversion import convert

    if in_place and name == "-":
        raise click.UsageError("--in-place needs a file")
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text()
    except OSError as problem:
        reason = (problem.strerror or "unreadable").lower()
        raise TrainyardError(f"cannot read {name}: {reason}") from problem
    except UnicodeDecodeError as problem:
        raise TrainyardError(f"cannot read {name}: it is not UTF-8 text") from problem
    converted = convert(text, "<stdin>" if name == "-" else name)
    for change in converted.changes:
        click.echo(str(change), err=True)
    if not in_place:
        click.echo(converted.text, nl=False)
    elif converted.text != text:
        try:
            Path(name).write_text(converted.text)
        except OSError as problem:
            reason = (problem.strerror or "unwritable").lower()
            raise TrainyardError(f"cannot write {name}: {reason}") from problem
