"""A parsed YAML document: its data, mistakes in its syntax, and the position of every field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.schema.dataclass import dataclass
from trainyard.schema.problems import Path

if TYPE_CHECKING:  # which takes 10 ms to import, and objects of ours come from no text
    from yaml.nodes import Node


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something wrong with the text itself; line and column count from 1."""

    message: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """One document: its data, mistakes in it, and the YAML nodes that the data came from."""

    data: Any
    mistakes: tuple[Mistake, ...]
    node: Node | None

    @property
    def is_broken(self) -> bool:
        """Whether this stands for a document of broken syntax."""
        return self.node is None and bool(self.mistakes)

    def locate(self, path: Path) -> tuple[int, int]:
        """Line and column, from 1, of the deepest part of the path that exists."""
        node, mark = self.node, self.node.start_mark if self.node else None
        for part in path:
            found = _child(node, part)
            if found is None:
                break
            mark, node = found
        return (mark.line + 1, mark.column + 1) if mark else (0, 0)


def _child(node: Any, part: str | int) -> tuple[Any, Node] | None:
    """The start of an entry, and the node of its value; None if there is no such entry."""
    if node is not None and node.id == "mapping":
        for key, value in node.value:
            if key.id == "scalar" and key.value == part:
                return key.start_mark, value
    if node is not None and node.id == "sequence" and isinstance(part, int):
        child = node.value[part] if part < len(node.value) else None
        return (child.start_mark, child) if child is not None else None
    return None
