"""What differs between two jobs: what was asked for, code, packages, interpreter, results."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from typing import Any

from trainyard.client import job_dependents
from trainyard.client.provenance_lookup import Past, Result, code_of
from trainyard.client.rerun_manifest import package_changes
from trainyard.schema.dataclass import dataclass
from trainyard.schema.problems import Path, format_path


@dataclass(frozen=True, slots=True)
class Pair:
    """What the one has and what the other has in its place."""

    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class Change:
    """A field of the spec that differs; None where one does not have it."""

    path: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class Side:
    """One of two jobs that are compared."""

    kind: str
    namespace: str
    name: str
    record: str
    """The name of its record; empty without one."""


@dataclass(frozen=True, slots=True)
class Results:
    """How both stand, or ended."""

    a: Result
    b: Result


@dataclass(frozen=True, slots=True)
class Comparison:
    """All in which two jobs differ; every part is empty, or None, where nothing does."""

    a: Side
    b: Side
    spec: list[Change]
    command: Pair | None
    code: Pair | None
    diff: list[str]
    """The lines in which what was not committed differs."""
    interpreter: Pair | None
    packages: dict[str, Pair] | None
    """Versions by name, "" where a package is not there; None where packages are not known."""
    results: Results
    """Of both, different or not."""


def compare(a: Past, b: Past) -> Comparison:
    """What differs between two jobs."""
    return Comparison(
        a=_named(a),
        b=_named(b),
        spec=[
            Change(format_path(path), old, new)
            for path, old, new in fields(_asked(a, a.job.name), _asked(b, a.job.name))
        ],
        command=_pair_of(a.command, b.command),
        code=_pair_of(code_of(a), code_of(b)),
        diff=_diff(a, b),
        interpreter=_pair_of(a.interpreter, b.interpreter),
        packages=_packages(a, b),
        results=Results(a.result, b.result),
    )


def _named(past: Past) -> Side:
    job = past.job
    return Side(job.kind.kind, job.namespace, job.name, past.record_name)


def _asked(past: Past, name: str) -> dict[str, Any]:
    """What was asked for, where objects that go with the job are called as those of `name`."""
    recorded = past.record.objects if past.record else []
    names = job_dependents.names_for(recorded, past.job.name, name)
    return {
        "kind": past.job.kind.kind,
        "spec": job_dependents.with_names(past.job.spec, names),
    }


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


def _pair_of(a: str, b: str) -> Pair | None:
    return Pair(a, b) if a != b else None


def _diff(a: Past, b: Past) -> list[str]:
    old, new = (
        [line for line in (each.diff or "").splitlines() if not line.startswith("index ")]
        for each in (a, b)
    )
    return list(unified_diff(old, new, "a", "b", n=0, lineterm=""))[2:]


def _packages(a: Past, b: Past) -> dict[str, Pair] | None:
    """None where the packages of one are not known."""
    if a.packages is None or b.packages is None:
        return None
    changes = package_changes(a.packages, b.packages)
    return {name: Pair(old, new) for name, (old, new) in changes.items()}
