"""Stored objects that cannot be read: which, why, and the stub that stands for each.

An older trainyard or a user stored them. They are not listed or watched, so no loop fails on them;
a get by name returns a stub that says what is wrong, and they can be deleted (decision 82).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import orjson

from trainyard.embedded.resources.resource import Object, Served
from trainyard.embedded.resources.resource_table import Resources
from trainyard.embedded.storage.journal import Entry, encoded
from trainyard.schema.problems import REQUIRED, Problem, error

CORRUPT_ANNOTATION = "trainyard.dev/damaged"
"""The annotation of a stub: why the object cannot be read."""
_UNDATED = "1970-01-01T00:00:00Z"


class CorruptObject(NamedTuple):
    """An object that cannot be read, at its place in the store."""

    resource: str
    namespace: str
    name: str
    problem: str
    stub: Object | None
    """What is shown in its place; None of a resource that nobody serves."""

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.resource} {place}{self.name} cannot be read: {self.problem}"

    def as_json(self) -> Mapping[str, str]:
        """As JSON."""
        return {key: getattr(self, key) for key in ("resource", "namespace", "name", "problem")}


def read_rows(
    rows: Iterable[tuple[str, str, str, bytes]], resources: Resources
) -> Iterator[tuple[str, tuple[str, str], Entry] | CorruptObject]:
    """The rows of a store, one by one: where an object belongs, and the object."""
    for resource, namespace, name, raw in rows:
        place = (str(resource), str(namespace), str(name))
        served = resources.get(place[0])
        if served is None or served.view_of:
            problem = "nobody serves this resource: is the package of its kind not installed?"
            yield CorruptObject(*place, problem, None)
            continue
        found = _entry(served, *place[1:], raw)
        if isinstance(found, Entry):
            yield place[0], (place[1], place[2]), found
        else:
            yield CorruptObject(*place, found, _stub(served, *place[1:], raw, found))


def _entry(served: Served, namespace: str, name: str, raw: bytes) -> Entry | str:
    """The object of a row, or why there is none."""
    try:
        obj = orjson.loads(raw)
    except (ValueError, TypeError) as failure:
        return f"it is not JSON: {failure}"
    if not isinstance(obj, dict):
        return "it is not a JSON object"
    found = served.decode(obj)
    problems = [*found.malformed, *filter(_is_essential, found.errors)]
    if not found.malformed:
        problems += _place_problems(obj, namespace, name)
    if problems := problems or list(served.unusable(obj)):
        return "; ".join(problem.detail for problem in problems)
    # Unknown fields stay, since a newer trainyard may have written them; nulls are gone.
    return Entry(obj, encoded(obj), int(obj["metadata"]["resourceVersion"]))


def _is_essential(problem: Problem) -> bool:
    """It is more than a choice that is not allowed; a status is what nobody can mend."""
    is_whole = len(problem.path) == 1 or problem.path[0] == "status"
    return is_whole or problem.message == REQUIRED


def _place_problems(obj: Object, namespace: str, name: str) -> Iterator[Problem]:
    metadata = obj.get("metadata") or {}
    wanted = {"name": name, "namespace": namespace}
    for field, value in wanted.items():
        if metadata.get(field, "") != value:
            message = f"is {metadata.get(field)!r}, but it is stored as {value!r}"
            yield error(("metadata", field), message)
    if not metadata.get("uid"):
        yield error(("metadata", "uid"), "is missing")
    version = metadata.get("resourceVersion", "")
    if not (version.isascii() and version.isdigit() and len(version) < 19):
        yield error(("metadata", "resourceVersion"), f"{version!r} is not a number")


def _stub(served: Served, namespace: str, name: str, raw: bytes, problem: str) -> Object:
    try:
        uid = orjson.loads(raw)["metadata"]["uid"]
    except (ValueError, TypeError, KeyError):
        uid = None
    if not isinstance(uid, str) or not uid:
        uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{served.name}/{namespace}/{name}"))
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "resourceVersion": "1",
        "creationTimestamp": _UNDATED,
        "annotations": {CORRUPT_ANNOTATION: problem[:4096]},
    }
    if not namespace:
        del metadata["namespace"]
    head = {"apiVersion": served.resource.api_version, "kind": served.kind}
    return {**head, "metadata": metadata, "spec": {}}
