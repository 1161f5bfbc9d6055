"""docs/faults.md as `make chaos` writes it: row by row, and nothing that it did not measure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.chaos.page import HEADS, Row, keep, table

ROOT = Path(__file__).parents[3]
ORDER = ["first", "second", "third"]
BY_HAND = "\n## How to read it\n\nBy hand.\n\n| a | table |\n|---|-------|\n"


def row(name: str, end: str = "yes", under: float = 125.0) -> list[str]:
    return Row(name, "a job", "kill, stop", 60, end, 3, 100.0, under).cells()


def test_each_row_takes_its_place_and_what_is_written_by_hand_stays(tmp_path: Path) -> None:
    page = tmp_path / "faults.md"
    page.write_text(f"# Old\n\nwords\n\n{table([row('third')])}\n{BY_HAND}")
    keep(row("first"), ORDER, "# New\n\n", page)
    keep(row("third", under=150.0), ORDER, "# New\n\n", page)
    text = page.read_text()
    assert text == f"# New\n\n{table([row('first'), row('third', under=150.0)])}\n{BY_HAND}"
    assert list(tmp_path.iterdir()) == [page]


def test_a_page_without_words_below_and_a_row_of_no_name_that_there_is(tmp_path: Path) -> None:
    page = tmp_path / "faults.md"
    page.write_text(f"{table([row('gone')])}\n")
    keep(row("second"), ORDER, "", page)
    assert page.read_text() == f"{table([row('second')])}\n"


def test_only_what_ended_the_same_has_a_ratio() -> None:
    at = HEADS.index("Ratio")
    assert row("first")[at] == "1.25"
    assert row("first", "no, ended with 1")[at] == ""
    assert Row("first", "a job", "kill", 60, "not measured: a | b").cells()[at - 3 :][:5] == [
        "",
        "",
        "",
        "",
        "not measured: a / b",
    ]


def test_the_page_can_be_written_again(tmp_path: Path) -> None:
    """Its rows have the names and columns of those that `make chaos` measures."""
    page = tmp_path / "faults.md"
    text = (ROOT / "docs" / "faults.md").read_text()
    page.write_text(text)
    names = _names()
    lines = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    have = [line.strip("| ").split()[0] for line in lines[1:]]
    assert have == [name for name in names if name in have]
    keep(Row("torchx", "x", "kill", 60, "yes").cells(), names, "", page)
    after = page.read_text()
    assert after.endswith(text[text.index("\n## ") :])
    assert all(f"\n| {name} " in after for name in (*have, "torchx"))


def _names() -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.chaos", "--rows", "nobody"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr.partition("is none of ")[2].strip().split(", ")
