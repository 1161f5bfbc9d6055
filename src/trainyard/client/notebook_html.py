"""What notebooks show of jobs: HTML without any script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_COLOURS = {"Running": "#1a7f37", "Succeeded": "#1a7f37", "Failed": "#cf222e", "Pending": "#9a6700"}
_MOST_ROWS = 32
_CELL = "text-align:left;padding:0 1em 0 0"


def table(title: str, phase: str, facts: str, rows: Sequence[tuple[str, str, str, str]]) -> str:
    """A job in a line, and a table of its replicas: name, phase, exit code and message of each."""
    shown = list(rows[:_MOST_ROWS])
    if left := len(rows) - len(shown):
        shown.append((f"… {left} more", "", "", ""))
    names = ("Replica", "Phase", "Exit", "Message")
    head = "".join(f'<th style="{_CELL}">{name}</th>' for name in names)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in shown)
    return (
        f"<div><b>{escape(title)}</b>: {_phase(phase)}{escape(facts)}</div>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cell(text: str) -> str:
    return f'<td style="{_CELL}">{_phase(text) if text in _COLOURS else escape(text)}</td>'


def _phase(text: str) -> str:
    return f'<span style="color:{_COLOURS.get(text, "inherit")}">{escape(text)}</span>'
