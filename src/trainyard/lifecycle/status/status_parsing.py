"""A job's status as it is stored, less what cannot be read.

Definitions require no part of a status, and whoever may write one may leave out any. An element
that lacks what each of its list has was never told (decision 105).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trainyard.lifecycle.replica_state import State

Obj = dict[str, Any]
_PHASES = frozenset(state.value for state in State)
_REPLICA_FIELDS = {"name", "uid", "phase", "containers"}
_ATTEMPT_FIELDS = {"number", "startTime"}


def parse_status(status: Mapping[str, Any], parsers: Iterable[Callable[[Obj], Obj]] = ()) -> Obj:
    """The status with whole elements only. `parsers` do the same for fields of policies."""
    found = dict(status)
    if tasks := status.get("tasks"):
        found["tasks"] = [_parse_task(each) for each in tasks if "type" in each]
    if attempts := status.get("attempts"):
        found["attempts"] = [each for each in attempts if each.keys() >= _ATTEMPT_FIELDS]
    if internal := status.get("internal"):
        found["internal"] = _parse_internal(internal)
    for parse in parsers:
        found = parse(found)
    return found


def _parse_task(task: Obj) -> Obj:
    entries = task.get("replicas") or ()
    return {**task, "replicas": [each for each in entries if _is_whole(each)]}


def _is_whole(entry: Obj) -> bool:
    if not (entry.keys() >= _REPLICA_FIELDS and entry["phase"] in _PHASES):
        return False
    return all("name" in container for container in entry["containers"])


def _parse_internal(internal: Obj) -> Obj:
    found = _without_broken_repeat(internal)
    if records := internal.get("replicas"):
        found["replicas"] = {
            name: _without_broken_repeat(record)
            for name, record in records.items()
            if "attempt" in record
        }
    return found


def _without_broken_repeat(record: Obj) -> Obj:
    return {
        key: value
        for key, value in record.items()
        if key != "repeat" or {"cause", "times"} <= value.keys()
    }
