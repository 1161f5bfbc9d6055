"""The fields of an object as a set, in the notation of `managedFields` (FieldsV1).

A set is a tree of `f:<name>` (a field), `k:<json>` (a list item by its keys) and `v:<json>` (an
item of a list of plain values). A node without children is in the set; one with children is if it
has `.` beside them. Lists that are merged item by item are those that strategic merge patches
merge; all others, and all lists of custom kinds, are atomic: owned as a whole.
https://kubernetes.io/docs/reference/using-api/server-side-apply/
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import orjson

from trainyard.embedded.apiserver.patch.patch_formats import MERGE_KEYS, PRIMITIVE_SETS
from trainyard.embedded.storage.journal import Object

Fields = dict[str, Any]
Path = tuple[str, ...]

_SYSTEM = {
    *("name", "namespace", "uid", "resourceVersion", "generation", "selfLink", "managedFields"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
}
"""Metadata that no manager owns."""
_ATOMIC = {
    *("configMapKeyRef", "fieldRef", "resourceFieldRef", "secretKeyRef"),
    *("labelSelector", "nodeSelector", "selector"),
}
"""Maps that are owned as a whole (`x-kubernetes-map-type`), except in custom kinds."""
_PORT_KEYS = ("containerPort", "port")
_HERE = "."
LEAF: Fields = {}
"""One for all: sets are shared, never change one."""
_NESTED = (dict, list)
_MAX_CACHED = 64
"""Keys of a map, or characters of a name, that are remembered."""


def owned_part(obj: Object, *, status: bool) -> Object:
    """The part of an object whose fields can be owned: its status, or all but its status."""
    if status:
        return {"status": obj["status"]} if "status" in obj else {}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _SYSTEM}
    unowned = ("apiVersion", "kind", "metadata", "status")
    return {"metadata": metadata} | {k: v for k, v in obj.items() if k not in unowned}


def applied(part: Object, *, custom: bool) -> Fields:
    """The fields that a configuration sets: leaves, and the items of merged lists."""
    return {
        f"f:{key}": found
        for key, value in part.items()
        if (found := _applied(value, key, custom and key != "metadata")) or key != "metadata"
    }


def _applied(value: Any, field: str, custom: bool) -> Fields:
    found: Fields = {}
    for name, child in (_children(value, field, custom) or {}).items():
        if child == [] and _children(child, name[2:], custom) is not None:
            continue  # a list of which nothing is set
        below = _applied(child, _field(name), custom)
        is_item = below and name[0] == "k"
        found[name] = {_HERE: LEAF, **below} if is_item else below
    return found


def compare(old: Object, new: Object, *, custom: bool) -> tuple[Fields, Fields]:
    """The fields that `new` adds or changes, and the fields that it removes from `old`."""
    changed: Fields = {}
    removed: Fields = {}
    for key, value in new.items():
        if key not in old:
            changed[f"f:{key}"] = _whole(value, key, custom and key != "metadata")
        elif old[key] != value:
            is_custom = custom and key != "metadata"
            _differ((f"f:{key}", key, is_custom), old[key], value, changed, removed)
    for key in old.keys() - new.keys():
        removed[f"f:{key}"] = _whole(old[key], key, custom)
    return changed, removed


def _differ(
    place: tuple[str, str, bool], was: Any, value: Any, changed: Fields, removed: Fields
) -> None:
    name, field, custom = place
    after = _children(value, field, custom)
    before = {} if was is None and after is not None else _children(was, field, custom)
    if before is None or after is None:
        changed[name] = _whole(value, field, custom)
        if before:
            removed[name] = dict.fromkeys(before, LEAF)
        return
    added: Fields = {}
    for child, item in after.items():
        if child not in before:
            added[child] = _whole(item, _field(child), custom)
    gone = {
        child: _whole(item, _field(child), custom)
        for child, item in before.items()
        if child not in after
    }
    for child in before.keys() & after.keys():
        if before[child] != after[child]:
            _differ((child, _field(child), custom), before[child], after[child], added, gone)
    if added:
        changed[name] = added
    if gone:
        removed[name] = gone


def _field(name: str) -> str:
    """The name of a field; "" for the item of a list."""
    return name[2:] if name[0] == "f" else ""


def _children(value: Any, field: str, custom: bool) -> dict[str, Any] | None:
    """The parts of a value by their names in a set; None for one that is owned as a whole."""
    if isinstance(value, dict):
        if field in _ATOMIC and not custom:
            return None
        return {f"f:{key}": child for key, child in value.items()}
    if isinstance(value, list) and not custom:
        names = [element(field, item) for item in value]
        if all(names) and (names or field in MERGE_KEYS or field in PRIMITIVE_SETS):
            return dict(zip(names, value, strict=True))
    return None


def _whole(value: Any, field: str, custom: bool) -> Fields:
    """The set of all fields in a value."""
    if isinstance(value, list):
        return LEAF if custom else _items(value, field)
    if not isinstance(value, dict) or (field in _ATOMIC and not custom):
        return LEAF
    is_short = len(value) <= _MAX_CACHED and not custom
    found = _flat(tuple(value)) if is_short else _flat.__wrapped__(tuple(value))
    below = [(key, child) for key, child in value.items() if type(child) in _NESTED and child]
    if below:
        found = {**found, **{f"f:{key}": _whole(child, key, custom) for key, child in below}}
    return found


def _items(items: list[Any], field: str) -> Fields:
    found: Fields = {_HERE: LEAF}
    for item in items:
        name = element(field, item)
        if not name:
            return LEAF
        found[name] = _whole(item, "", custom=False)
    return found if items else LEAF


@lru_cache(1024)
def _flat(keys: tuple[str, ...]) -> Fields:
    """The set of a map of plain values; objects of one kind share most of them."""
    return {_HERE: LEAF, **{f"f:{key}": LEAF for key in keys}} if keys else LEAF


def element(field: str, item: Any) -> str:
    """How an item of the list `field` is named in a set; empty when the list is atomic."""
    if not isinstance(item, dict):
        return f"v:{_json(item)}" if field in PRIMITIVE_SETS else ""
    if field == "ports":
        keys: Sequence[str] = [key for key in _PORT_KEYS if key in item][:1]
        pairs = {key: item[key] for key in keys} | {"protocol": item.get("protocol", "TCP")}
        return f"k:{_json(pairs)}" if keys else ""
    key = MERGE_KEYS.get(field)
    if not key or key not in item:
        return ""
    value = item[key]
    if type(value) is str and len(value) <= _MAX_CACHED:
        return _keyed(key, value)
    return f"k:{_json({key: value})}"


@lru_cache(4096)
def _keyed(key: str, value: str) -> str:
    return f"k:{_json({key: value})}"


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def union(one: Fields, other: Fields) -> Fields:
    """The fields that are in one set or the other."""
    found = {name: node for name, node in one.items() if name != _HERE}
    for name, node in other.items():
        if name != _HERE:
            mine = found.get(name)
            found[name] = node if mine is None else _joined(mine, node)
    return found


def _joined(one: Fields, other: Fields) -> Fields:
    children = union(one, other)
    return {_HERE: LEAF, **children} if children and (_is_in(one) or _is_in(other)) else children


def minus(fields: Fields, gone: Fields) -> Fields:
    """The fields of `fields` that are not in `gone`."""
    kept: Fields = {}
    for name, node in fields.items():
        below = gone.get(name)
        if name == _HERE:
            continue
        if below is None:
            kept[name] = node
            continue
        children, stays = minus(node, below), _is_in(node) and not _is_in(below)
        if children:
            kept[name] = {_HERE: LEAF, **children} if stays else children
        elif stays:
            kept[name] = LEAF
    return kept


def common(one: Fields, other: Fields) -> Iterator[Path]:
    """The paths that are in both sets."""
    for name in sorted(one.keys() & other.keys() - {_HERE}):
        if _is_in(one[name]) and _is_in(other[name]):
            yield (name,)
        yield from ((name, *rest) for rest in common(one[name], other[name]))


def has(fields: Fields, path: Path) -> bool:
    """Whether a path is in a set."""
    for name in path:
        if name not in fields:
            return False
        fields = fields[name]
    return _is_in(fields)


def _is_in(node: Fields) -> bool:
    return not node or _HERE in node


def is_valid(fields: Any) -> bool:
    """Whether a FieldsV1 that a client sent is well-formed."""
    return isinstance(fields, dict) and all(
        name == _HERE or (_is_name(name) and is_valid(node)) for name, node in fields.items()
    )


def _is_name(name: str) -> bool:
    kind, rest = name[:2], name[2:]
    if kind == "f:":
        return True
    try:
        value = orjson.loads(rest)
    except ValueError:
        return False
    return kind == "v:" or (kind == "k:" and isinstance(value, dict))


def remove(value: Any, gone: Fields, kept: Fields, field: str = "") -> None:
    """Take what is in `gone` out of a value, unless something of it is in `kept`, and the maps
    and lists that are empty without."""
    if isinstance(value, dict):
        for name, below in gone.items():
            key = name[2:]
            if key in value and _is_taken(value[key], below, kept.get(name), key):
                del value[key]
    elif isinstance(value, list):
        value[:] = [item for item in value if not _item_is_taken(item, gone, kept, field)]


def _item_is_taken(item: Any, gone: Fields, kept: Fields, field: str) -> bool:
    name = element(field, item)
    return name in gone and _is_taken(item, gone[name], kept.get(name), "")


def _is_taken(value: Any, gone: Fields, kept: Fields | None, field: str) -> bool:
    """Remove the fields `gone` from a value; returns whether nothing is left of it."""
    if _is_in(gone) and kept is None:
        return True
    if not isinstance(value, dict | list) or not value:
        return False
    remove(value, gone, kept or {}, field)
    return not value and kept is None


def merge(target: Any, wanted: Any, field: str, custom: bool) -> Any:
    """`target` (taken over) with everything that `wanted` sets."""
    if isinstance(wanted, dict) and isinstance(target, dict):
        if field in _ATOMIC and not custom:
            return wanted
        for key, value in wanted.items():
            nested = custom and not (field == "" and key == "metadata")
            target[key] = merge(target.get(key), value, key, nested)
        return target
    if isinstance(wanted, list) and isinstance(target, list) and not custom:
        names = [element(field, item) for item in wanted]
        if names and all(names):
            present = {element(field, item): item for item in target}
            for name, item in zip(names, wanted, strict=True):
                present[name] = merge(present.get(name), item, field, custom)
            return list(present.values())
    return wanted
