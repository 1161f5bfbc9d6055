"""The fields of an object as sets of paths, in the notation of `managedFields` (FieldsV1).

A path is a tuple of `f:<name>` (a field), `k:<json>` (a list item by its keys) and `v:<json>` (an
item of a set). Lists that are merged item by item are those that strategic merge patches merge;
all others, and all lists of custom kinds, are atomic: owned as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from trainyard.local.apiserver.patches import MERGE_KEYS, PRIMITIVE_SETS
from trainyard.local.storage.journal import Object

Path = tuple[str, ...]

_SYSTEM_FIELDS = (
    "name namespace uid resourceVersion generation creationTimestamp deletionTimestamp "
    "deletionGracePeriodSeconds managedFields selfLink generateName"
)
_UNOWNED = {
    ("f:apiVersion",),
    ("f:kind",),
    *(("f:metadata", f"f:{field}") for field in _SYSTEM_FIELDS.split()),
}
_PORT_KEYS = ("containerPort", "port")


def field_paths(obj: Object, *, custom: bool) -> set[Path]:
    """The fields that `obj` sets: leaves, and the items of merged lists."""
    found: set[Path] = set()
    for key, value in obj.items():
        path: Path = (f"f:{key}",)
        _collect(value, path, custom and key != "metadata", found)
    return {path for path in found if path not in _UNOWNED and path[:2] not in _UNOWNED}


def _collect(value: Any, path: Path, atomic_lists: bool, found: set[Path]) -> None:
    if isinstance(value, dict) and value:
        for key, child in value.items():
            _collect(child, (*path, f"f:{key}"), atomic_lists, found)
        return
    if isinstance(value, list) and value and not atomic_lists:
        elements = [element(path[-1][2:], item) for item in value]
        if all(elements):
            for name, item in zip(elements, value, strict=True):
                found.add((*path, name))
                if isinstance(item, dict):
                    _collect(item, (*path, name), atomic_lists, found)
            return
    found.add(path)


def element(field: str, item: Any) -> str:
    """How an item of the list `field` is named in a path; empty when the list is atomic."""
    if not isinstance(item, dict):
        return f"v:{json.dumps(item)}" if field in PRIMITIVE_SETS else ""
    if field == "ports":
        keys: Sequence[str] = [key for key in _PORT_KEYS if key in item][:1]
        pairs = {key: item[key] for key in keys} | {"protocol": item.get("protocol", "TCP")}
        return f"k:{_compact(pairs)}" if keys else ""
    key = MERGE_KEYS.get(field)
    return f"k:{_compact({key: item[key]})}" if key and key in item else ""


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


class Values:
    """The values of an object by their paths; the object may not change meanwhile."""

    def __init__(self, obj: Object) -> None:
        self._object = obj
        self._items: dict[tuple[int, str], dict[str, Any]] = {}
        """Of each list that was looked into, its items by their names."""

    def at(self, path: Path) -> Any:
        """The value at a path, or None."""
        obj: Any = self._object
        for number, name in enumerate(path):
            if name.startswith("f:"):
                obj = obj.get(name[2:]) if isinstance(obj, dict) else None
            elif number and isinstance(obj, list):
                obj = self._named(obj, path[number - 1][2:]).get(name)
            else:
                return None
        return obj

    def _named(self, items: list[Any], field: str) -> dict[str, Any]:
        found = self._items.get((id(items), field))
        if found is None:
            found = {element(field, item): item for item in reversed(items)}
            self._items[id(items), field] = found
        return found


def remove(obj: Object, paths: Iterable[Path]) -> None:
    """Take the values at `paths` out of `obj`, and the maps and lists that are empty without."""
    root: dict[str, Any] = {}
    for path in paths:
        node = root
        for name in path[:-1]:
            node = node.setdefault(name, {})
            if node is _ALL:
                break
        else:
            node[path[-1]] = _ALL
    _take(obj, root, "")


_ALL: dict[str, Any] = {}
"""Stands for a whole value."""


def _take(value: Any, names: dict[str, Any], field: str) -> None:
    if isinstance(value, dict):
        for name, below in names.items():
            key = name[2:]
            if below is _ALL or (key in value and _is_taken(value[key], below, key)):
                value.pop(key, None)
    elif isinstance(value, list):
        value[:] = [item for item in value if not _item_is_taken(item, names, field)]


def _item_is_taken(item: Any, names: dict[str, Any], field: str) -> bool:
    below = names.get(element(field, item))
    return below is not None and (below is _ALL or _is_taken(item, below, field))


def _is_taken(value: Any, names: dict[str, Any], field: str) -> bool:
    """Take what is named out of a value; whether nothing of it is left."""
    if not isinstance(value, dict | list) or not value:
        return False
    _take(value, names, field)
    return not value


def merge(target: Any, wanted: Any, field: str, atomic_lists: bool) -> Any:
    """`target` (taken over) with everything that `wanted` sets."""
    if isinstance(wanted, dict) and isinstance(target, dict):
        for key, value in wanted.items():
            nested = atomic_lists and not (field == "" and key == "metadata")
            target[key] = merge(target.get(key), value, key, nested)
        return target
    if isinstance(wanted, list) and isinstance(target, list) and not atomic_lists:
        names = [element(field, item) for item in wanted]
        if names and all(names):
            present = {element(field, item): item for item in target}
            for name, item in zip(names, wanted, strict=True):
                present[name] = merge(present.get(name), item, field, atomic_lists)
            return list(present.values())
    return wanted


def encode(paths: Iterable[Path]) -> Object:
    """A set of paths as FieldsV1."""
    root: Object = {}
    for path in sorted(paths):
        node = root
        for name in path:
            node = node.setdefault(name, {})
        if path[-1].startswith("k:"):
            node["."] = {}
    return root


def decode(fields: Object) -> set[Path]:
    """The inverse of `encode`."""
    found: set[Path] = set()
    _decode(fields, (), found)
    return found


def _decode(fields: Object, path: Path, found: set[Path]) -> None:
    children = {key: value for key, value in fields.items() if key != "."}
    if path and ("." in fields or not children):
        found.add(path)
    for key, value in children.items():
        if key[:2] not in ("f:", "k:", "v:") or (key[:1] != "f" and not path):
            continue
        _decode(value if isinstance(value, dict) else {}, (*path, key), found)
