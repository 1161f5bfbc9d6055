"""The commands that texts of the product advise, as its sources have them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import trainyard

SOURCE = Path(trainyard.__file__).parent
_QUOTED = re.compile(r"`((?:\{[^{}]*\})?(?:trainyard|kubectl) [^`]+)`")
_BARE = re.compile(r"((?:\{[^{}]*\})?trainyard [^\n`]+)")
"""As a whole string, such as the command of a card."""


class Advised(NamedTuple):
    """One command: `trainyard logs {situation.job.name}`, with the expressions in braces."""

    place: str
    template: str


def advised() -> list[Advised]:
    """All of them, each once."""
    found: dict[str, str] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        prose = set(_docstrings(tree))
        for node, text in _strings(tree):
            if id(node) in prose:
                continue
            bare = _BARE.fullmatch(text)
            for template in _QUOTED.findall(text) or ([bare[1]] if bare else []):
                found.setdefault(template, f"{path.relative_to(SOURCE)}:{node.lineno}")
    return [Advised(place, template) for template, place in found.items()]


def _docstrings(tree: ast.AST) -> Iterator[int]:
    """Strings that stand by themselves."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield id(node.value)


def _strings(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    parts = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node, "".join(map(_source, node.values))
        elif isinstance(value := getattr(node, "value", None), str) and id(node) not in parts:
            assert isinstance(node, ast.expr)
            yield node, value


def _source(part: ast.expr) -> str:
    if isinstance(part, ast.FormattedValue):
        return f"{{{ast.unparse(part.value)}}}"
    assert isinstance(part, ast.Constant)
    return str(part.value)
