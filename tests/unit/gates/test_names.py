"""One meaning a word: a module or class that is searched for by its name is found once."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import PurePath

from tests.unit.gates.sources import sources

ROLES = frozenset(
    {
        "__init__",
        "__main__",
        "spec",
        "rules",
        "legacy",
        "workload",
        "script",
        "status",
        "errors",
        "options",
    }
)
"""Modules with one role in every kind's folder (see `docs/development/extending.md`)."""
MOST_FILES_A_CLASS = 2
BY_DESIGN = frozenset({"_Factory"})
"""How each kind turns a job into a workload, in its `workload.py`."""


def test_no_two_modules_have_the_same_name() -> None:
    found = defaultdict(list)
    for source in sources():
        found[PurePath(source.name).stem].append(source.name)
    assert {
        name: files for name, files in found.items() if len(files) > 1 and name not in ROLES
    } == {}


def test_no_class_name_stands_in_three_files() -> None:
    found = defaultdict(set)
    for source in sources():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(source.name)
    assert {
        name: files
        for name, files in found.items()
        if len(files) > MOST_FILES_A_CLASS and name not in BY_DESIGN
    } == {}
