"""Every measurement as one table, printed and kept in docs/benchmarks.md: `make bench`.

Each module of this package has `measure()`, which returns rows (what, value, unit, target). A
target is an upper limit, or a lower one for a rate. Each module is measured in a process of its
own, so that none inherits another's memory, and with what was compiled kept. Names of modules as
arguments measure only those, and keep nothing.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import click

MODULES = (
    "startup",
    "scripts",
    "demo",
    "launchers",
    "jobs",
    "pods",
    "egress",
    "apiserver",
    "beside",
    "plan",
    "validate",
    "operator",
    "many",
    "observer",
    "in_place",
    "cold",
)
_DOCUMENT = Path(__file__).parent.parent / "docs" / "benchmarks.md"
_MEASURE = "import json, sys, bench.{0} as m; json.dump(m.measure(), sys.stdout)"
_PATIENCE_SECONDS = 1200


class Row(NamedTuple):
    """One measurement."""

    what: str
    value: float | None
    """None where this machine lacks what it takes; `what` says which program."""
    unit: str
    target: float | None

    @property
    def is_rate(self) -> bool:
        """More is better."""
        return self.unit.endswith(("/s", "/start", "of it"))

    def cells(self) -> tuple[str, str, str, str]:
        """What to print of it."""
        if self.value is None:
            return self.what, "", "", ""
        if self.target is None:
            return self.what, f"{_number(self.value)} {self.unit}", "", ""
        is_met = self.value >= self.target if self.is_rate else self.value <= self.target
        sign = "≥" if self.is_rate else "≤"
        limit = f"{sign} {_number(self.target)} {self.unit}"
        return self.what, f"{_number(self.value)} {self.unit}", limit, "yes" if is_met else "no"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def measure(module: str, folder: str) -> list[Row]:
    """The rows of one module, which leaves its files in a folder; one that fails raises."""
    print(f"measuring {module} …", file=sys.stderr, flush=True)
    environment = {n: text for n, text in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE.format(module)],
        stdout=subprocess.PIPE,
        env={**environment, "TMPDIR": folder},
        cwd=Path(__file__).parent.parent,
        timeout=_PATIENCE_SECONDS,
        check=True,
    )
    return [Row(*row) for row in json.loads(done.stdout)]


def table(rows: list[Row]) -> str:
    """Markdown that reads well in a terminal too."""
    cells = [("What", "Measured", "Budget", "Kept"), *(row.cells() for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def machine() -> str:
    """On what this was measured."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"{len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB of memory, "
        f"Linux {platform.release().partition('-')[0]}, Python {platform.python_version()}, "
        f"{time.strftime('%Y-%m-%d', time.gmtime())}"
    )


@click.command()
@click.argument("chosen", metavar="[MODULE]...", nargs=-1, type=click.Choice(MODULES))
def main(chosen: tuple[str, ...]) -> None:
    """Measure, print, and keep; only print what modules find that are named."""
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        rows = [row for module in chosen or MODULES for row in measure(module, folder)]
    text = table(rows)
    print(text)
    if not chosen:
        told = _DOCUMENT.read_text()
        by_hand = told[told.find("\n## ") :] if "\n## " in told else ""
        _DOCUMENT.write_text(_PREFACE.format(machine=machine()) + text + "\n" + by_hand)


_PREFACE = """# Benchmarks

The table is written by `make bench`, the sections below it by hand; how each figure is taken is
said in `bench/`. A budget is what a figure may reach before code has become too slow: 1.15 times
what a release took before, or a limit that the design set. A run by hand means the same commands
started by a script, without trainyard. Changes are compared by runs in turn on one machine;
figures of different days can be compared as ratios and as starts of a bare interpreter only.

Machine: {machine}.

"""

if __name__ == "__main__":
    main()
