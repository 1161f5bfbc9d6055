"""The pod runtime stands alone: others import what its README lists, and nothing else of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.unit.gates.sources import PACKAGE, ROOT, sources

RUNTIME = "trainyard.podruntime"
README = PACKAGE / "podruntime" / "README.md"


def listed() -> set[str]:
    return set(re.findall(rf"^\| `({RUNTIME}\.[a-z_.]+)` \|", README.read_text(), re.MULTILINE))


def imported(tree: ast.Module) -> Iterator[str]:
    """Modules of the pod runtime that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith(RUNTIME))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(RUNTIME):
            assert node.module is not None
            folder = PACKAGE.parent.joinpath(*node.module.split("."))
            is_package = folder.is_dir()
            yield from (
                f"{node.module}.{each.name}" if is_package else node.module for each in node.names
            )


def test_others_import_exactly_the_modules_that_the_readme_lists() -> None:
    used = {
        name
        for source in sources()
        if not source.name.startswith("podruntime/")
        for name in imported(source.tree)
    }
    assert used == listed()


def test_its_unit_tests_import_nothing_of_trainyard_but_itself() -> None:
    foreign = [
        (path.name, name)
        for path in sorted((ROOT / "tests" / "unit" / "podruntime").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for name in [node.module or ""]
        if name.split(".")[0] == "trainyard" and not name.startswith(RUNTIME)
    ]
    assert foreign == []


def test_the_readme_lists_every_message() -> None:
    from trainyard.podruntime import protocol

    text = README.read_text()
    missing = [
        name
        for name in (*protocol._REQUESTS, *protocol._EVENTS)
        if not re.search(rf"^\|.*`{name}`.*\|", text, re.MULTILINE)
    ]
    assert missing == []
