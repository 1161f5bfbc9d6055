"""Parses the source locations in tracebacks and stacks."""

from __future__ import annotations

import re

from trainyard.schema.dataclass import dataclass

_FRAME = re.compile(r'(?:> | {2,3})File "([^"]+)", line (\d+)(?:,? in (.+))?\s*')
"""As Python shows it; torch.compile has a space more, loguru marks the last one."""
_RICH = re.compile(r"[│|] (\S+):(\d+) in *(\S*?) *[│|]?\s*")
_RICH_SOURCE = re.compile(r"[│|] ❱ *\d+ (.*)")
_FOREIGN = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python3[\d.]*/|^<|/t9k/launch/|/bin/\w+$"
    r"|\.(?:pyx|pxi|cpp|cu|cc)$"
)
"""Files of packages, of Python itself and of launchers, and what is no file."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of source."""

    file: str
    line: int
    function: str = ""
    source: str = ""

    @property
    def is_own(self) -> bool:
        """Whether it is in what the user wrote, rather than in what they installed."""
        return _FOREIGN.search(self.file) is None

    @property
    def where(self) -> str:
        """`train.py:12 in main`, by the file's own name."""
        inside = f" in {self.function}" if self.function not in ("", "<module>") else ""
        return f"{self.file.rpartition('/')[2]}:{self.line}{inside}"


def parse_frame(line: str) -> Frame | None:
    """The place that a line of a traceback names; None if it names none."""
    found = _FRAME.fullmatch(line) or (_RICH.fullmatch(line) if line[:1] in "│|" else None)
    if found is None or len(found[2]) > 9:
        return None
    return Frame(found[1], int(found[2]), (found[3] or "").strip())


def parse_source(line: str) -> str | None:
    """The source that a line of a traceback shows, below the place that it belongs to; None if it
    is no such line, "" if it only marks what stands above it (`~~~~^^^^`)."""
    if (found := _RICH_SOURCE.match(line)) is not None:
        return found[1].rstrip("│| ").lstrip("│ ")
    if line.startswith("    "):
        return line.strip() if line.strip(" \t~^") else ""
    return "" if line[:1] in "│╰└" else None
