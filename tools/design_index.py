"""Writes the index of the design pages: each numbered decision, and the page that explains it.

``python -m tools.design_index`` writes ``docs/development/design/README.md`` anew below its heading
"Numbers"; with ``--check`` it fails where the file is not what it would write.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "docs/development/design"
_INDEX = FOLDER / "README.md"
_HEADING = "## Numbers\n"
_ENTRY = re.compile(r'^<a id="(\d+)"></a>\n(\d+)\. \*\*(.+?)\*\*', re.MULTILINE | re.DOTALL)


class Decision(NamedTuple):
    """A numbered choice, and the page (without its suffix) on which it stands."""

    number: int
    title: str
    page: str


def decisions() -> Iterator[Decision]:
    """Every decision of every design page, page by page."""
    for path in sorted(FOLDER.glob("*.md")):
        for anchor, number, title in _ENTRY.findall(path.read_text(encoding="utf-8")):
            if anchor != number:
                raise ValueError(f"{path.name}: decision {number} has the anchor {anchor}")
            yield Decision(int(number), " ".join(title.split()).rstrip("."), path.stem)


def index() -> str:
    """The whole text of the index page, its introduction taken from the present one."""
    introduction = _INDEX.read_text(encoding="utf-8").partition(_HEADING)[0]
    rows = "".join(
        f"| [{number}]({page}.md#{number}) | {title} | {page} |\n"
        for number, title, page in sorted(decisions())
    )
    return f"{introduction}{_HEADING}\n| | Decision | Page |\n|---|---|---|\n{rows}"


def main(arguments: list[str]) -> int:
    """Write the index, or with ``--check`` say whether it is stale."""
    text = index()
    if "--check" not in arguments:
        _INDEX.write_text(text, encoding="utf-8")
    elif _INDEX.read_text(encoding="utf-8") != text:
        print(f"{_INDEX} is stale; run: make generate")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
