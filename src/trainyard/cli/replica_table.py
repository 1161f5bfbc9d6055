"""Lays out the table of replicas for a terminal of any size; draws nothing.

A replica's name and phase are never cropped. What does not fit beside them goes to a line below:
first the text (a message, or the line that is being written), then the phase.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

HEADINGS = {
    "exit": "EXIT",
    "cpu": "CPU",
    "memory": "MEMORY",
    "gpu": "GPU",
    "gpu_memory": "GPU-MEMORY",
    "late": "LATE",
}
"""The columns of figures, in the order in which there is room for them."""
_GAP, _INDENT = "  ", "  "
_MIN_TEXT_CELLS = 24
"""With fewer cells beside the figures, the text gets a line of its own."""
_STYLES = {"Running": "green", "Succeeded": "green", "Failed": "red", "Pending": "yellow"}
_URGENCY = ("Failed", "Pending", "Unknown", "Running")
"""When there is no room for all replicas, those in the first of these phases are shown."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_CONTROLS = dict.fromkeys((*range(32), *range(127, 160))) | {ord("\t"): " "}


class Row(NamedTuple):
    """A replica. ``figures`` has the keys of ``HEADINGS``; ``text`` may contain anything."""

    name: str
    phase: str
    figures: Mapping[str, str]
    text: str = ""


class _Columns(NamedTuple):
    """Widths in cells; 0 for ``text`` or ``phase``: on a line below."""

    name: int
    phase: int
    figures: Mapping[str, int]
    text: int


def layout_lines(rows: Sequence[Row], width: int, height: int) -> list[Text]:
    """Return at most ``height`` lines of at most ``width`` cells, the headings first."""
    if height < 1 or not rows:
        return []
    shown = _most_urgent(rows, height)
    while True:
        columns = _columns(shown, width)
        body = [list(_row(row, columns, width)) for row in shown]
        lines = [*_heading(columns), *(line for part in body for line in part)]
        excess = len(lines) - height + (len(shown) < len(rows))
        if excess <= 0 or not shown:
            break
        shown = _most_urgent(rows, len(shown) - max(1, excess // max(map(len, body))))
    if len(shown) < len(rows):
        lines.append(Text(_cropped(_hidden_summary(rows, shown), width), style="dim"))
    return lines[:height]


def one_line(text: str, width: int) -> Text:
    """Return the text as one line, cropped to ``width`` cells."""
    return Text(_cropped(strip_control(text), width))


def strip_control(text: str) -> str:
    """Remove what would move the cursor or change a colour."""
    return _ESCAPES.sub("", text).translate(_CONTROLS)


def _most_urgent(rows: Sequence[Row], count: int) -> list[Row]:
    """Return ``count`` of the rows in their order, the most urgent ones."""
    if len(rows) <= count:
        return list(rows)
    ranks = [_URGENCY.index(row.phase) if row.phase in _URGENCY else len(_URGENCY) for row in rows]
    first = sorted(range(len(rows)), key=lambda place: (ranks[place], place))[: max(0, count)]
    return [rows[place] for place in sorted(first)]


def _hidden_summary(rows: Sequence[Row], shown: Sequence[Row]) -> str:
    phases = Counter(row.phase for row in rows)
    phases.subtract(row.phase for row in shown)
    counts = ", ".join(f"{count} {phase}" for phase, count in phases.items() if count)
    return f"… {phases.total()} more: {counts}"


def _columns(rows: Sequence[Row], width: int) -> _Columns:
    name = max(cell_len(text) for text in ("REPLICA", *(row.name for row in rows)))
    phase = max(cell_len(text) for text in ("PHASE", *(row.phase for row in rows)))
    if name + len(_GAP) + phase > width:
        name = max(map(cell_len, (row.name for row in rows)), default=0)  # without its heading
        phase = phase if name + len(_GAP) + phase <= width else 0
    used = (
        name + len(_GAP) + phase
        if phase
        else len(_INDENT) + max((cell_len(row.phase) for row in rows), default=0)
    )
    figures = {}
    for key, heading in HEADINGS.items():
        texts = [row.figures.get(key, "") for row in rows]
        size = max(map(cell_len, (heading, *texts)))
        if any(texts) and used + len(_GAP) + size <= width:
            figures[key] = size
            used += len(_GAP) + size
    left = width - used - len(_GAP)
    return _Columns(name, phase, figures, left if phase and left >= _MIN_TEXT_CELLS else 0)


def _heading(columns: _Columns) -> Iterator[Text]:
    if not columns.phase:
        return
    name = "REPLICA" if columns.name >= len("REPLICA") else ""
    phase = "PHASE" if columns.phase >= len("PHASE") else ""
    line = _fitted(name, columns.name) + _GAP + _fitted(phase, columns.phase)
    for key, size in columns.figures.items():
        line += _GAP + HEADINGS[key].rjust(size)
    yield Text(line.rstrip(), style="bold")


def _row(row: Row, columns: _Columns, width: int) -> Iterator[Text]:
    style = _STYLES.get(row.phase, "")
    figures = "".join(
        _GAP + " " * (size - cell_len(row.figures.get(key, ""))) + row.figures.get(key, "")
        for key, size in columns.figures.items()
    )
    if columns.phase:
        line = Text(_fitted(row.name, columns.name) + _GAP)
        line.append(_fitted(row.phase, columns.phase), style)
    else:
        for part in chop_cells(row.name, width):
            yield Text(part)
        line = Text(_INDENT)
        line.append(row.phase, style)
    line.append(figures)
    text = strip_control(row.text).strip() or _figures_without_column(row, columns)
    if text and columns.text:
        line.append(_GAP + _cropped(text, columns.text))
    line.rstrip()
    yield line
    if text and not columns.text:
        yield Text(_INDENT + _cropped(text, width - len(_INDENT)))


def _figures_without_column(row: Row, columns: _Columns) -> str:
    """The figures that have no column, shown where there is no other text."""
    left = (key for key in HEADINGS if row.figures.get(key) and key not in columns.figures)
    return _GAP.join(f"{HEADINGS[key]} {row.figures[key]}" for key in left)


def _fitted(text: str, cells: int) -> str:
    return set_cell_size(text, cells)


def _cropped(text: str, cells: int) -> str:
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, max(0, cells - 1)).rstrip() + "…"
