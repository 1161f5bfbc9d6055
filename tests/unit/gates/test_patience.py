"""No test gives up on what has to come while a busy machine may only be slow."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[2]
LEAST_SECONDS = 120
"""What takes a second here takes less than this with much else to do on the machine."""
POLL_SECONDS = 1
"""Shorter ones are pauses between two looks."""


def limits(tree: ast.AST) -> Iterator[tuple[int, float]]:
    """The line and the seconds of each limit that is written as a number."""
    for node in ast.walk(tree):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call):
            values = [each.value for each in node.keywords if each.arg == "timeout"]
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if name in ("wait", "join", "timeout"):
                values += node.args[:1]
            elif name == "wait_for":
                values += node.args[1:2]
        elif isinstance(node, ast.BinOp) and ast.unparse(node.left) == "time.monotonic()":
            values = [node.right]
        for value in values:
            if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
                yield value.lineno, value.value


def impatient(text: str) -> list[int]:
    """The lines with a limit that a slow machine may come to."""
    found = limits(ast.parse(text))
    return [line for line, seconds in found if POLL_SECONDS <= seconds < LEAST_SECONDS]


def test_no_test_gives_up_within_two_minutes() -> None:
    assert not {
        f"{path.relative_to(TESTS)}:{line}"
        for path in TESTS.rglob("*.py")
        for line in impatient(path.read_text())
    }


def test_limits_are_found() -> None:
    assert impatient("run(argv, timeout=60)\nprocess.wait(9)\nuntil = time.monotonic() + 5") == [
        1,
        2,
        3,
    ]
    assert impatient("asyncio.timeout(30)\nasyncio.wait_for(it(), 2)") == [1, 2]
    assert impatient("event.wait(0.1)\nrun(argv, timeout=300)\nx.wait(PATIENCE)") == []
