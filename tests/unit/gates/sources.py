"""The modules of `src/` as syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import trainyard

PACKAGE = Path(trainyard.__file__).parent
ROOT = Path(__file__).parents[3]


class Source(NamedTuple):
    """A file: its path below the package (`kinds/kind_registry.py`), its text and its tree."""

    name: str
    text: str
    tree: ast.Module


@cache
def sources() -> tuple[Source, ...]:
    """Every file of the package."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Source(path.relative_to(PACKAGE).as_posix(), text, ast.parse(text)))
    return tuple(found)


def imports(tree: ast.Module) -> Iterator[str]:
    """Every module that is imported, inside functions too; a relative one begins with a dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")
