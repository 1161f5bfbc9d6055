"""Columns of `kubectl get`, and those that most resources have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainyard.embedded.clock import age
from trainyard.schema.dataclass import dataclass

Cell = Callable[[dict[str, Any]], Any]
UNKNOWN = "<unknown>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `priority` above 0 shows only with `-o wide`."""

    name: str
    cell: Cell
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""

    def show(self, obj: dict[str, Any]) -> Any:
        """The cell of an object; a broken object gives `<unknown>` and does not fail the list."""
        try:
            return self.cell(obj)
        except Exception:  # of a shape that nothing here makes (decision 81)
            return UNKNOWN


def at(path: str, default: Any = "<none>") -> Cell:
    """Reads the field at a path; `default` where it is absent or empty."""
    keys = path.split(".")

    def cell(obj: dict[str, Any]) -> Any:
        value: Any = obj
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return default if value is None or value == "" else value

    return cell


NAME = Column("Name", lambda obj: obj["metadata"]["name"], format="name")
AGE = Column("Age", lambda obj: age(obj["metadata"].get("creationTimestamp")))
