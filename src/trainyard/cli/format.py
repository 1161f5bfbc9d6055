"""Plain text for people: tables, ages, and objects as YAML or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_GAP = "   "
NONE = "-"
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""Escape sequences of terminals (ECMA-48): CSI, OSC and single ones."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Left-aligned columns, as kubectl prints them; empty cells show as `-`."""
    lines = [[str(header) for header in headers]]
    lines += [[NONE if cell is None or cell == "" else printable(cell) for cell in r] for r in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def printable(value: object) -> str:
    """The text without what would colour, move or clear a terminal: words of a program may."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _ESCAPE.sub("", str(value)))


def indent(text: str, by: int) -> str:
    """Every line but the first moved to the right."""
    return text.replace("\n", "\n" + " " * by)


def document(obj: Mapping[str, Any], output: str) -> str:
    """An object as `json` or `yaml`, without what only servers need."""
    cleaned = _without_managed_fields(obj)
    if output == "json":
        return json.dumps(cleaned, indent=2, ensure_ascii=False)
    import yaml

    text: str = yaml.safe_dump(cleaned, sort_keys=False, allow_unicode=True)
    return text.rstrip("\n")


def _without_managed_fields(obj: Mapping[str, Any]) -> dict[str, Any]:
    if "items" in obj:
        return {**obj, "items": [_without_managed_fields(item) for item in obj["items"]]}
    metadata = {k: v for k, v in (obj.get("metadata") or {}).items() if k != "managedFields"}
    return {**obj, "metadata": metadata}
