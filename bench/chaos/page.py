"""docs/faults.md: a table of which each row is kept as soon as it is measured."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

HEADS = (
    "Row",
    "What",
    "Faults",
    "Every",
    "Count",
    "Without",
    "With",
    "Ratio",
    "Ended the same",
    "Load",
    "On",
)
PAGE = Path(__file__).parent.parent.parent / "docs" / "faults.md"


class Row(NamedTuple):
    """One comparison."""

    name: str
    what: str
    faults: str
    every: int
    """Seconds between two faults."""
    end: str
    """"yes" if it ended with faults as without, else what became of it."""
    count: int | None = None
    without: float | None = None
    """Seconds, if it ended."""
    under: float | None = None
    """Seconds until it ended in one way or another."""

    def cells(self) -> list[str]:
        """Of the table, with the load of the last five minutes and the day."""
        ratio = ""
        if self.without and self.under and self.end == "yes":
            ratio = f"{self.under / self.without:.2f}"
        seconds = ["" if each is None else f"{each:.0f} s" for each in (self.without, self.under)]
        count = "" if self.count is None else str(self.count)
        moment = f"{os.getloadavg()[1]:.0f}", time.strftime("%Y-%m-%d", time.gmtime())
        head = [self.name, self.what, self.faults, f"{self.every} s", count]
        return [*head, *seconds, ratio, self.end.replace("|", "/"), *moment]


def table(rows: list[list[str]]) -> str:
    """Markdown that reads well in a terminal too."""
    cells = [list(HEADS), *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def keep(row: list[str], order: list[str], preface: str, page: Path = PAGE) -> None:
    """Put a row in the place of the one that had its name; `order` is that of all names.

    The preface is written anew, and what stands below the table from a headline on stays.
    """
    told = page.read_text()
    by_hand = told[told.find("\n## ") :] if "\n## " in told else ""
    rows = {each[0]: each for each in _rows(told.removesuffix(by_hand))} | {row[0]: row}
    left = [rows[name] for name in order if name in rows]
    draft = page.with_name(f"{page.name}.new")
    draft.write_text(f"{preface}{table(left)}\n{by_hand}")
    draft.replace(page)


def _rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [each for each in found if len(each) == len(HEADS)]
