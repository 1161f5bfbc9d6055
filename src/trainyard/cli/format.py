"""Plain text for people: tables, ages, and objects as YAML or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from trainyard.local.apiserver.columns import duration

__all__ = ["age", "document", "duration", "indent", "parse_time", "printable", "span", "table"]

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


def parse_time(text: str | None) -> datetime | None:
    """An RFC 3339 time of an object; None for an absent one."""
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def age(text: str | None, now: datetime) -> str:
    """How long ago a time of an object was: `5m3s`, `2d4h`."""
    moment = parse_time(text)
    return "<unknown>" if moment is None else duration((now - moment).total_seconds())


def span(start: str | None, end: str | None, now: datetime) -> str:
    """How long something took, or takes until now: `0.4s`, `12s`, `5m3s`."""
    began = parse_time(start)
    if began is None:
        return ""
    seconds = ((parse_time(end) or now) - began).total_seconds()
    return f"{max(seconds, 0):.1f}s" if seconds < 10 else duration(seconds)


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
