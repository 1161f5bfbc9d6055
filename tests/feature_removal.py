"""Removes a feature from a copy of the source: its files, and its rows in files of others.

A row is a line that only exists for the feature, and that nothing else refers to: an import, an
element of a list, tuple, set or mapping, a keyword argument, a field of a class, or a statement
that is only a call. Whatever else mentions the feature is a place that has to be named.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

Range = tuple[tuple[int, int], tuple[int, int]]
"""From line and column to line and column, in bytes; lines count from 1."""


class Place(NamedTuple):
    """A line of the feature that uses nothing of its modules: a field of a class, such as
    `Job.node_check`, or an entry of a mapping, such as `COMMANDS["chaos"]`."""

    path: str
    owner: str
    """The class, or the name of the mapping."""
    name: str


def remove_files(package: Path, feature: str) -> frozenset[str]:
    """Delete the folders and modules that are named after the feature; the modules' names."""
    found = [
        path
        for path in package.rglob("*.py")
        if any(p.startswith(feature) for p in path.relative_to(package).parts)
    ]
    names = set()
    for path in found:
        path.unlink()
        names.add(_module(package, path))
    for path in package.rglob(f"{feature}*"):
        if path.is_dir():
            shutil.rmtree(path)
    return frozenset(names)


def _module(package: Path, path: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def remove_rows(package: Path, gone: frozenset[str], places: tuple[Place, ...]) -> set[str]:
    """Delete the rows of modules that are `gone`, and these places; the files that had any."""
    touched = set()
    for path in sorted(package.rglob("*.py")):
        name, source = path.relative_to(package).as_posix(), path.read_bytes()
        tree = ast.parse(source)
        found = [*_rows(tree, gone), *_at_places(tree, [p for p in places if p.path == name])]
        if found:
            path.write_bytes(_without(source, found))
            touched.add(name)
    return touched


def _rows(tree: ast.Module, gone: frozenset[str]) -> Iterator[Range]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            dropped = [
                each
                for each in node.names
                if node.module in gone or f"{node.module}.{each.name}" in gone
            ]
            names |= {each.asname or each.name for each in dropped}
            yield from [_range(node)] if len(dropped) == len(node.names) else map(_range, dropped)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            row = _row_of(node, parents)
            if row is not None:
                yield row


def _row_of(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Range | None:
    """The row that a name stands in; None if it stands in anything else, which stays, and fails."""
    while (parent := parents.get(node)) is not None:
        # An innermost literal may be a pair in a table; what is in brackets after a name is a type.
        is_literal = isinstance(parent, _LITERALS)
        if is_literal and not isinstance(parents[parent], (*_LITERALS, ast.Subscript)):
            return _entry(parent, node) if isinstance(parent, ast.Dict) else _range(node)
        if isinstance(node, ast.keyword):
            return _range(node)
        if isinstance(node, ast.AnnAssign | ast.Assign) and isinstance(parent, ast.ClassDef):
            return _range(node)
        if isinstance(node, ast.stmt):
            is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
            return _range(node) if is_call else None
        node = parent
    return None


def _at_places(tree: ast.Module, places: list[Place]) -> Iterator[Range]:
    for place in places:
        found = [*_fields(tree, place), *_entries(tree, place)]
        assert found, f"{place.path} has no {place.owner} with {place.name}"
        yield from found


def _fields(tree: ast.Module, place: Place) -> Iterator[Range]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == place.owner:
            for line in node.body:
                target = line.targets[0] if isinstance(line, ast.Assign) else line
                target = target.target if isinstance(target, ast.AnnAssign) else target
                if isinstance(target, ast.Name) and target.id == place.name:
                    yield _range(line)


def _entries(tree: ast.Module, place: Place) -> Iterator[Range]:
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == place.owner:
                for key in node.value.keys:
                    if isinstance(key, ast.Constant) and key.value == place.name:
                        yield _entry(node.value, key)


_LITERALS = (ast.List, ast.Tuple, ast.Set, ast.Dict)


def _range(node: ast.AST) -> Range:
    assert isinstance(node, ast.stmt | ast.expr | ast.keyword | ast.alias)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _entry(mapping: ast.Dict, part: ast.AST) -> Range:
    """The entry with this key or value, or with the two asterisks of one that is unpacked."""
    index = [*mapping.keys, *mapping.values].index(part) % len(mapping.keys)
    key, value = mapping.keys[index], mapping.values[index]
    (line, column), end = _range(value if key is None else key)[0], _range(value)[1]
    return (line, column if key is not None else column - len("**")), end


def _without(source: bytes, ranges: list[Range]) -> bytes:
    """The source without these ranges, the comma behind each, and lines that are then empty."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    spans = sorted(
        (starts[first[0] - 1] + first[1], starts[last[0] - 1] + last[1]) for first, last in ranges
    )
    for begin, end in reversed(_outermost(spans)):
        after = source[end:]
        rest = after.lstrip()
        if rest.startswith(b","):
            after = rest[1:]
        before = source[:begin]
        line = before.rpartition(b"\n")[2]
        if not line.strip() and after.startswith(b"\n"):
            before, after = before[: len(before) - len(line)], after[1:]
        source = before + after
    return source


def _outermost(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for begin, end in spans:
        if not found or begin >= found[-1][1]:
            found.append((begin, end))
    return found


def mentions(package: Path, word: str) -> set[str]:
    """Files whose code or texts still have the word, in any spelling; documentation may."""
    found = set()
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_bytes())
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) not in alone and any(word in text for text in _words(node)):
                found.add(path.relative_to(package).as_posix())
    return found


def _words(node: ast.AST) -> Iterator[str]:
    for _, value in ast.iter_fields(node):
        if isinstance(value, str):
            yield value.lower().replace("_", "").replace(" ", "").replace("-", "")
