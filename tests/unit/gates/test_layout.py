"""What the layout of the code promises (see `docs/development/architecture.md`)."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest
from tests.unit.gates.sources import Source, imports, sources

from trainyard.kinds.kind_registry import JOB_KINDS

MAX_FUNCTION_LINES = 60
MAX_MODULE_LINES = 800


@pytest.mark.parametrize("room", ["podruntime", "payloads"])
def test_a_program_of_its_own_imports_nothing_but_the_standard_library(room: str) -> None:
    """The shim forks before anything heavy; payloads run in images that have nothing of ours."""
    foreign = [
        (source.name, name)
        for source in sources()
        if source.name.startswith(f"{room}/")
        for name in imports(source.tree)
        if not name.startswith(".")  # of the same room
        and name.split(".")[0] not in sys.stdlib_module_names
        and name.split(".")[:2] != ["trainyard", room]
        # What runs in the place of torchrun has the torch of the image.
        and not (source.name.startswith("payloads/torchrun/") and name.startswith("torch."))
    ]
    assert foreign == []


def test_no_file_imports_itself_by_way_of_others() -> None:
    """Imports that only annotations need count too."""
    graph = grimp.build_graph("trainyard", cache_dir=None)
    arrows = {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


def test_no_function_is_longer_than_60_lines_and_no_module_than_800() -> None:
    too_long = {
        what for source in sources() for what, lines, limit in _lengths(source) if lines > limit
    }
    assert too_long == set()


def _lengths(source: Source) -> Iterator[tuple[str, int, int]]:
    yield source.name, len(source.text.splitlines()), MAX_MODULE_LINES
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            yield f"{source.name} {node.name}", lines, MAX_FUNCTION_LINES


def test_no_room_but_that_of_the_kinds_names_a_kind() -> None:
    """A kind is a folder, or a package of someone else's: nobody else may know it by its name."""
    names = re.compile(rf"\b({'|'.join(JOB_KINDS)})\b")
    found = {
        f"{source.name}: {text}"
        for source in sources()
        if not source.name.startswith("kinds/")
        for text in _strings(source.tree)
        if names.search(text)
    }
    assert found == set()


def _strings(tree: ast.Module) -> Iterator[str]:
    """Every text but those that stand alone, which are documentation."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value
