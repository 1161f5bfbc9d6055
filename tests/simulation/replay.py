"""Decides recorded passes anew: lines of `trainyard operator --record FILE`, or of a run here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import orjson
from pydantic import TypeAdapter

from trainyard.kinds.kind_registry import KINDS
from trainyard.lifecycle.actions import Plan
from trainyard.lifecycle.observed import Observed
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.reconcile.job_records import JobRecord
from trainyard.operator.reconcile.planner import Planner
from trainyard.operator.reconcile.reconcile_log import Line, changes, decision

T = TypeVar("T")
_OBSERVED = TypeAdapter(Observed)
_SETTINGS = TypeAdapter(OperatorSettings)
_RENAMED = {
    "": {"heard": "reports", "words": "probe_output"},
    "reports": {"holds": "in_place", "checks": "node_checks", "late": "stragglers"},
    "pods": {"held": "awaits_in_place_restart", "told": "container_statuses"},
    "ranks": {"heard": "received_at"},
    "in_place": {"heard": "received_at"},
    "node_checks": {"heard": "received_at"},
}
"""Fields of `Observed` that records of earlier versions have under other names, by where."""


class UnknownRecord(ValueError):
    """A record says something that this version would leave out of a decision."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first pass for which `plan()` answers otherwise today."""

    number: int
    job: str
    parts: Mapping[str, tuple[Any, Any]]
    """By path: what the record says, and what comes of it today."""

    def __str__(self) -> str:
        lines = [f"  {path}: {then!r} → {today!r}" for path, (then, today) in self.parts.items()]
        return "\n".join([f"pass {self.number} of {self.job} is decided otherwise:", *lines])


def replay(lines: Iterable[bytes]) -> int | Difference:
    """Plan every recorded pass again: how many came out the same, or the first that did not.

    Raises `UnknownRecord`, and for what is no record ValueError or KeyError.
    """
    planner = Planner(OperatorSettings())
    count = 0
    for text in lines:
        line = orjson.loads(text)
        if "settings" in line:
            planner = Planner(_read(_SETTINGS, line["settings"]))
        if "input" not in line:
            continue
        today = _decide_again(line["input"], planner)
        if today != line["decided"]:
            return Difference(line["pass"], line["job"], _parts(line["decided"], today))
        count += 1
    return count


def _decide_again(given: Line, planner: Planner) -> Line:
    if given["kind"] not in KINDS:
        raise UnknownRecord(f"it has a {given['kind']}, which is no kind here")
    job = JobRecord.decode(KINDS[given["kind"]], given["job"])
    observed = read_observed(given["observed"])
    answer: Plan | Exception
    try:
        now = datetime.fromisoformat(given["now"])
        answer = planner.plan(job, observed, now)
    except Exception as error:  # as it may have been then
        answer = error
    return decision(job, answer)


def read_observed(given: Any) -> Observed:
    """What a pass of this version or an earlier one saw; raises UnknownRecord."""
    return _read(_OBSERVED, _with_present_names(given, ""))


def _with_present_names(value: Any, place: str) -> Any:
    """A part of what was observed, as the present version names its fields."""
    if isinstance(value, list):
        return [_with_present_names(each, place) for each in value]
    if not isinstance(value, Mapping):
        return value
    names = _RENAMED.get(place, {})
    present = {names.get(name, name): part for name, part in value.items()}
    if place == "pods" and (avoids := present.pop("avoids", "")):
        present["annotations"] = [["trainyard.dev/avoids", avoids]]
    by_pod = place in ("in_place", "node_checks") and "attempt" not in present
    return {
        name: _with_present_names(part, place if by_pod else name) for name, part in present.items()
    }


def _read(as_type: TypeAdapter[T], given: Any) -> T:
    """A value of this type; raises UnknownRecord where a part of what is given would be lost."""
    value = as_type.validate_python(given)
    for path in _lost(given, as_type.dump_python(value, mode="json"), ""):
        raise UnknownRecord(f"it has {path}, which this version does not know")
    return value


def _lost(given: Any, read: Any, path: str) -> Iterator[str]:
    if isinstance(given, Mapping):
        for name, part in given.items():
            inner = f"{path}.{name}" if path else name
            if name in read:
                yield from _lost(part, read[name], inner)
            else:
                yield inner
    elif isinstance(given, list):
        for each, other in zip(given, read, strict=False):
            yield from _lost(each, other, path)


def _parts(then: Line, today: Line) -> dict[str, tuple[Any, Any]]:
    forward, back = dict(changes(then, today)), dict(changes(today, then))
    return {path: (back.get(path), forward.get(path)) for path in {**back, **forward}}
