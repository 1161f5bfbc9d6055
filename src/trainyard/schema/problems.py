"""What is wrong with a manifest, and where: the one shape in which every check reports.

A path is a tuple of keys and indexes (``("spec", "replicaSpecs", 0, "type")``) until it is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache

from trainyard.schema.dataclass import dataclass

Path = tuple[str | int, ...]

REQUIRED = "is required"
"""The message about a field that is not there, and should be."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")


class Severity(StrEnum):
    """An error refuses the manifest, a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of one object.

    ``suggestion`` is the right spelling of the last part of the path or of its value, or "".
    ``line`` and ``column`` count from 1; 0 means unknown. ``object`` reads ``Kind namespace/name``.
    """

    severity: Severity
    path: Path
    message: str
    suggestion: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    object: str = ""

    @property
    def where(self) -> str:
        """The path as text, e.g. ``spec.replicaSpecs[0].type``; "" for the whole object."""
        return format_path(self.path)

    @property
    def detail(self) -> str:
        """Path, message and suggestion, without file and object."""
        hint = f"; did you mean '{self.suggestion}'?" if self.suggestion else ""
        return f"{self.where}: {self.message}{hint}" if self.path else f"{self.message}{hint}"

    def __str__(self) -> str:
        place = ":".join([self.file, *(str(n) for n in (self.line, self.column) if n)])
        parts = [place] if self.file else []
        parts.append(str(self.severity))
        if self.object:
            parts.append(self.object)
        parts.append(self.detail)
        return ": ".join(parts)


class WithProblems:
    """A result of a check with every problem that it found."""

    __slots__ = ()
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that refuse it."""
        return tuple(p for p in self.problems if p.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The other problems."""
        return tuple(p for p in self.problems if p.severity is Severity.WARNING)


def error(path: Path, message: str, suggestion: str = "") -> Problem:
    """A problem that refuses the object."""
    return Problem(Severity.ERROR, path, message, suggestion)


def warning(path: Path, message: str, suggestion: str = "") -> Problem:
    """A problem that the user should know of."""
    return Problem(Severity.WARNING, path, message, suggestion)


def format_path(path: Iterable[str | int]) -> str:
    """``spec.template.metadata.labels['a.b/c']`` style text of a path."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.match(part):
            text += f".{part}" if text else part
        else:
            text += f"[{part!r}]"
    return text


@lru_cache(maxsize=4096)
def _closest(word: str, known: tuple[str, ...]) -> str:
    by_folded = {name.lower(): name for name in known}
    if word.lower() in by_folded:
        return by_folded[word.lower()]
    found = get_close_matches(word.lower(), by_folded, n=1, cutoff=0.7)
    return by_folded[found[0]] if found else ""


def suggest(word: str, known: Sequence[str]) -> str:
    """The known word closest to ``word`` regardless of case, or "" when none is close."""
    return _closest(word[:100], tuple(known))
