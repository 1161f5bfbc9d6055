"""`trainyard diff`: what differs between two jobs, also of such as are gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from trainyard.cli.format import NONE, printable, table
from trainyard.cli.options import where_options
from trainyard.cli.rerun import look_up
from trainyard.cli.target import complete_jobs
from trainyard.client.comparing import compare
from trainyard.schema.times import duration

_LINES = 40
"""Of the difference between two diffs that are shown; JSON has all."""


@click.command()
@click.option("-o", "--output", type=click.Choice(["json"]), help="As JSON, with all lines.")
@where_options
@click.argument("a", metavar="A", shell_complete=complete_jobs)
@click.argument("b", metavar="B", shell_complete=complete_jobs)
def command(
    a: str, b: str, output: str | None, place: tuple[str | None, str | None, str | None]
) -> None:
    """Say what differs between the jobs A and B: fields, code, packages, interpreter, results.

    A and B are named as for rerun: train~1 is the last but one that was called train.
    """
    found = compare(look_up(place, a)[0], look_up(place, b)[0])
    if output:
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        click.echo("\n\n".join(_sections(found)))


def _sections(found: dict[str, Any]) -> Iterator[str]:
    names = [_name(found[side]) for side in "ab"]
    yield table(("", *names), _results(found["results"]))
    pairs = [
        (label, found[key])
        for label, key in (("command", "command"), ("code", "code"), ("python", "interpreter"))
        if found[key]
    ]
    rows = [(row["path"], _short(row["a"]), _short(row["b"])) for row in found["spec"]]
    rows += [(label, pair["a"], pair["b"]) for label, pair in pairs]
    rows += [(name, pair["a"], pair["b"]) for name, pair in (found["packages"] or {}).items()]
    if rows:
        yield table(("DIFFERS", *names), rows)
    elif not found["diff"]:
        yield "Nothing else that is known differs."
    if found["diff"]:
        lines, left = found["diff"][:_LINES], len(found["diff"]) - _LINES
        more = [f"… and {left} lines more (-o json)"] if left > 0 else []
        yield "\n".join(["Not committed:", *map(printable, lines), *more])
    if found["packages"] is None:
        yield "Whether packages differ is not known."


def _name(side: dict[str, str]) -> str:
    return f"{side['name']} ({side['record']})" if side["record"] else side["name"]


def _results(results: dict[str, Any]) -> list[tuple[object, ...]]:
    a, b = results["a"], results["b"]
    rows = [(label, a[label], b[label]) for label in ("phase", "restarts", "failure")]
    took = [_seconds(result["seconds"]) for result in (a, b)]
    return [*((label, *pair) for label, *pair in rows if any(pair)), ("took", *took)]


def _seconds(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.1f}s" if value < 60 else duration(value)


def _short(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
