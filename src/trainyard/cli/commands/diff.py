"""`trainyard diff`: what differs between two jobs, also of such as are gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from trainyard.api.commands import Where, ask
from trainyard.api.recorded_jobs import Comparison, Results, Side
from trainyard.cli.job_options import complete_job_names, with_where
from trainyard.cli.text_output import NONE, printable, table
from trainyard.schema.times import duration

_LINES = 40
"""Of the difference between two diffs that are shown; JSON has all."""


@click.command()
@click.option("-o", "--output", type=click.Choice(["json"]), help="As JSON, with all lines.")
@with_where
@click.argument("a", metavar="A", shell_complete=complete_job_names)
@click.argument("b", metavar="B", shell_complete=complete_job_names)
def command(where: Where, a: str, b: str, output: str | None) -> None:
    """Say what differs between the jobs A and B: fields, code, packages, interpreter, results.

    A and B are named as for rerun: train~1 is the last but one that was called train.
    """
    found = ask(where, lambda client: client.diff(a, b), cluster="any")
    if output:
        click.echo(json.dumps(asdict(found), indent=2, ensure_ascii=False))
    else:
        click.echo("\n\n".join(_sections(found)))


def _sections(found: Comparison) -> Iterator[str]:
    names = [_name(side) for side in (found.a, found.b)]
    yield table(("", *names), _results(found.results))
    pairs = (("command", found.command), ("code", found.code), ("python", found.interpreter))
    rows = [(change.path, _short(change.a), _short(change.b)) for change in found.spec]
    rows += [(label, pair.a, pair.b) for label, pair in pairs if pair]
    rows += [(name, pair.a, pair.b) for name, pair in (found.packages or {}).items()]
    if rows:
        yield table(("DIFFERS", *names), rows)
    elif not found.diff:
        yield "Nothing else that is known differs."
    if found.diff:
        lines, left = found.diff[:_LINES], len(found.diff) - _LINES
        more = [f"… and {left} lines more (-o json)"] if left > 0 else []
        yield "\n".join(["Not committed:", *map(printable, lines), *more])
    if found.packages is None:
        yield "Whether packages differ is not known."


def _name(side: Side) -> str:
    return f"{side.name} ({side.record})" if side.record else side.name


def _results(results: Results) -> list[tuple[object, ...]]:
    a, b = results.a, results.b
    rows: list[tuple[object, ...]] = [
        ("phase", a.phase, b.phase),
        ("restarts", a.restarts, b.restarts),
        ("failure", a.failure, b.failure),
    ]
    took = ("took", _seconds(a.seconds), _seconds(b.seconds))
    return [*(row for row in rows if any(row[1:])), took]


def _seconds(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.1f}s" if value < 60 else duration(value)


def _short(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
