"""What differs between two jobs: what was asked for, code, packages, interpreter, results."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from typing import Any

from trainyard.client.origin import Past, code_of
from trainyard.client.repeating import package_changes
from trainyard.kinds.shared import labels
from trainyard.schema.problems import Path, format_path


def compare(a: Past, b: Past) -> dict[str, Any]:
    """All that differs, ready for JSON; every part is empty, or null, where nothing does.

    `spec` is a list of ``{path, a, b}``; `code` and `interpreter` are pairs; `diff` the lines in
    which what was not committed differs; `packages` versions by name; `results` both of them.
    """
    return {
        "a": _named(a),
        "b": _named(b),
        "spec": [
            {"path": format_path(path), "a": old, "b": new}
            for path, old, new in fields(_asked(a), _asked(b))
        ],
        "command": _pair(a, b, labels.COMMAND),
        "code": _pair_of(code_of(a), code_of(b)),
        "diff": _diff(a, b),
        "interpreter": _pair(a, b, labels.INTERPRETER),
        "packages": _packages(a, b),
        "results": {"a": a.result, "b": b.result},
    }


def _named(past: Past) -> dict[str, str]:
    job = past.job
    named = {"kind": job.kind.kind, "namespace": job.namespace, "name": job.name}
    return {**named, "record": past.record_name}


def _asked(past: Past) -> dict[str, Any]:
    return {"kind": past.job.kind.kind, "spec": past.job.spec}


def fields(a: Any, b: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """The places where two objects differ, as deep as possible; None where one has nothing."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys((*a, *b)):
            yield from fields(a.get(key), b.get(key), (*path, key))
    elif isinstance(a, list) and isinstance(b, list):
        for index in range(max(len(a), len(b))):
            old, new = (each[index] if index < len(each) else None for each in (a, b))
            yield from fields(old, new, (*path, index))
    elif a != b:
        yield path, a, b


def _pair(a: Past, b: Past, annotation: str) -> dict[str, str] | None:
    return _pair_of(a.annotation(annotation), b.annotation(annotation))


def _pair_of(a: str, b: str) -> dict[str, str] | None:
    return {"a": a, "b": b} if a != b else None


def _diff(a: Past, b: Past) -> list[str]:
    old, new = (
        [line for line in (each.diff or "").splitlines() if not line.startswith("index ")]
        for each in (a, b)
    )
    return list(unified_diff(old, new, "a", "b", n=0, lineterm=""))[2:]


def _packages(a: Past, b: Past) -> dict[str, dict[str, str]] | None:
    """None where the packages of one are not known."""
    if a.packages is None or b.packages is None:
        return None
    changes = package_changes(a.packages, b.packages)
    return {name: {"a": old, "b": new} for name, (old, new) in changes.items()}
