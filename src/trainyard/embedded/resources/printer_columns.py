"""One column of what `kubectl get` prints, and those that most resources have."""

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
        """What the column says of an object; no object hides the others from who lists them."""
        try:
            return self.cell(obj)
        except Exception:  # of a shape that nothing here makes (decision 81)
            return UNKNOWN


def at(path: str, default: Any = "<none>") -> Cell:
    """What is found at a path of fields, `default` where that is nothing."""
    keys = path.split(".")

    def cell(obj: dict[str, Any]) -> Any:
        value: Any = obj
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return default if value is None or value == "" else value

    return cell


NAME = Column("Name", lambda obj: obj["metadata"]["name"], format="name")
AGE = Column("Age", lambda obj: age(obj["metadata"].get("creationTimestamp")))
