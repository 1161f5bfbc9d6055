"""The three patch formats of the Kubernetes API: JSON patch, JSON merge and strategic merge.

Pure functions on plain JSON values; the object patched is taken over and may be changed in place.
Formats: RFC 6902, RFC 7386, and Kubernetes' "strategic merge patch" with its directives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from trainyard.embedded.api_errors import bad_request, too_large
from trainyard.embedded.apiserver.requests import request_limits
from trainyard.kube.errors import ApiError

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_MERGED_BY = {
    "name": "containers env ephemeralContainers imagePullSecrets initContainers resourceClaims "
    "schedulingGates secrets volumes",
    "type": "addresses conditions",
    "ip": "hostAliases podIPs",
    "uid": "ownerReferences",
    "key": "taints",
    "topologyKey": "topologySpreadConstraints",
    "devicePath": "volumeDevices",
    "mountPath": "volumeMounts",
}
MERGE_KEYS: Mapping[str, str] = {
    field: key for key, fields in _MERGED_BY.items() for field in fields.split()
}
"""List field to the key by which its items are merged (`x-kubernetes-patch-merge-key`)."""

PRIMITIVE_SETS = frozenset({"finalizers", "podCIDRs"})
_ORDER, _PRIMITIVES = "$setElementOrder/", "$deleteFromPrimitiveList/"
_RETAIN, _DIRECTIVE = "$retainKeys", "$patch"


_NEEDED = {
    "add": ("value", "path"),
    "remove": ("path",),
    "replace": ("value", "path"),
    "move": ("from", "path"),
    "copy": ("from", "path"),
    "test": ("path",),
}
"""What each operation of a JSON patch must have."""
_FIELDS = ("op", "path", "from", "value")


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902; a failed operation refuses the whole patch."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    if len(operations) > request_limits.MAX_PATCH_OPERATIONS:
        raise too_large(
            f"a JSON patch has at most {request_limits.MAX_PATCH_OPERATIONS} operations"
        )
    for operation in operations:
        _check_operation(operation)
    cost = _PatchCost()
    for operation in operations:
        try:
            target = _operate(target, operation, cost)
        except (
            KeyError,
            IndexError,
            ValueError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            shown = request_limits.shortened(repr(operation))
            raise ApiError(
                f"the server rejected our request due to an error in our request: "
                f"the JSON patch operation {shown} fails: {request_limits.shortened(str(error))}",
                code=422,
                reason="Invalid",
            ) from error
    request_limits.check_shape(target)
    return target


def _check_operation(operation: Any) -> None:
    """Raise BadRequest for a malformed operation, before any is applied."""
    shown = request_limits.shortened(repr(operation))
    name = operation.get("op") if isinstance(operation, dict) else None
    wanted = _NEEDED.get(name) if isinstance(name, str) else None
    if wanted is None:
        raise bad_request(f"invalid operation {shown}: its op is none of {', '.join(_NEEDED)}")
    if missing := [key for key in wanted if key not in operation]:
        raise bad_request(f"invalid operation {shown}: it has no {missing[0]}")
    if not all(isinstance(operation.get(key, ""), str) for key in ("path", "from")):
        raise bad_request(f"invalid operation {shown}: path and from are texts")


def unknown_fields(operations: Any) -> list[str]:
    """Warnings about fields of JSON patch operations that do not exist."""
    return [
        f'unknown field "[{index}].{key}"'
        for index, operation in enumerate(operations if isinstance(operations, list) else ())
        for key in (operation if isinstance(operation, dict) else ())
        if key not in _FIELDS
    ]


class _PatchCost:
    """Work done for one patch, so that a patch that costs too much is refused."""

    def __init__(self) -> None:
        self._copied = self._moved = 0

    def copy(self, value: Any) -> Any:
        """A copy of a part of the object."""
        request_limits.check_shape(value)
        text = orjson.dumps(value)
        self._copied += len(text)
        if self._copied > request_limits.MAX_COPIED_BYTES:
            raise too_large(
                f"a JSON patch copies at most {request_limits.MAX_COPIED_BYTES >> 20} MiB"
            )
        return orjson.loads(text)

    def count_moved(self, items: Sequence[Any]) -> None:
        """Count an insertion into a list, or a removal from it."""
        self._moved += len(items)
        if self._moved > request_limits.MAX_MOVED_ITEMS:
            raise too_large("a JSON patch changes long lists too often; replace them")


def _operate(target: Any, operation: Mapping[str, Any], cost: _PatchCost) -> Any:
    name, path = operation["op"], _pointer(operation["path"])
    if name == "test":
        found = _lookup(target, path)
        if found != operation.get("value"):
            raise ValueError(f"the value there is {request_limits.shortened(repr(found))}")
        return target
    if name == "remove":
        return _remove(target, path, cost)[0]
    if name == "replace":
        if not path:
            return operation["value"]
        _lookup(target, path)
        return _add(_remove(target, path, cost)[0], path, operation["value"], cost)
    if name == "add":
        return _add(target, path, operation["value"], cost)
    source = _pointer(operation["from"])
    if name == "copy":
        return _add(target, path, cost.copy(_lookup(target, source)), cost)
    if path[: len(source)] == source and path != source:
        raise ValueError("a value cannot be moved into itself")
    rest, value = _remove(target, source, cost)
    return _add(rest, path, value, cost)


def _pointer(text: str) -> list[str]:
    if not text:
        return []
    if not text.startswith("/"):
        raise ValueError(f"{text!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _lookup(target: Any, path: Sequence[str]) -> Any:
    for part in path:
        target = target[_index(part, target)] if isinstance(target, list) else target[part]
    return target


def _index(part: str, items: Sequence[Any], *, end: bool = False) -> int:
    if part == "-" and end:
        return len(items)
    if not (part.isascii() and part.isdigit() and len(part) < 10) or (
        len(part) > 1 and part[0] == "0"
    ):
        raise ValueError(f"{part!r} is not an index")
    index = int(part)
    if index > len(items) - (0 if end else 1):
        raise IndexError(f"no index {index} in a list of {len(items)}")
    return index


def _add(target: Any, path: Sequence[str], value: Any, cost: _PatchCost) -> Any:
    if not path:
        return value
    parent = _lookup(target, path[:-1])
    if isinstance(parent, list):
        cost.count_moved(parent)
        parent.insert(_index(path[-1], parent, end=True), value)
    elif isinstance(parent, dict):
        parent[path[-1]] = value
    else:
        raise TypeError(f"/{'/'.join(path[:-1])} is neither an object nor a list")
    return target


def _remove(target: Any, path: Sequence[str], cost: _PatchCost) -> tuple[Any, Any]:
    if not path:
        return None, target
    parent = _lookup(target, path[:-1])
    if isinstance(parent, list):
        cost.count_moved(parent)
        return target, parent.pop(_index(path[-1], parent))
    return target, parent.pop(path[-1])


def strategic_merge_patch(target: Any, patch: Any) -> Any:
    """Merge a patch whose lists are merged item by item; see the Kubernetes API conventions."""
    return _merge_objects(target, patch) or {}


def _merge_objects(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    directive = patch.get(_DIRECTIVE)
    if directive == "delete":
        return None
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive not in (None, "merge", "delete"):
        raise bad_request(f"{_DIRECTIVE} may be merge, replace or delete")
    result = target if isinstance(target, dict) else {}
    retained = patch.get(_RETAIN)
    if retained is not None:
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key.startswith(_PRIMITIVES):
            field = key[len(_PRIMITIVES) :]
            gone = {_identity(each) for each in value}
            result[field] = [
                each for each in result.get(field) or [] if _identity(each) not in gone
            ]
        elif not key.startswith("$"):
            _merge_field(result, key, value)
    _order_fields(result, patch)
    return result


def _order_fields(result: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, order in patch.items():
        if key.startswith(_ORDER) and isinstance(result.get(key[len(_ORDER) :]), list):
            field = key[len(_ORDER) :]
            result[field] = _ordered(field, result[field], order)


def _merge_field(result: dict[str, Any], key: str, value: Any) -> None:
    if isinstance(value, list):
        value = _merge_lists(key, result.get(key), value)
    elif isinstance(value, dict):
        value = _merge_objects(result.get(key), value)
    if value is None:
        result.pop(key, None)
    else:
        result[key] = value


def _merge_key(field: str, items: Sequence[Any]) -> str | None:
    if field == "ports":
        return "containerPort" if any("containerPort" in item for item in items) else "port"
    return MERGE_KEYS.get(field)


def _merge_lists(field: str, target: Any, patch: list[Any]) -> list[Any]:
    present = list(target) if isinstance(target, list) else []
    if not all(isinstance(item, dict) for item in patch):
        if field in PRIMITIVE_SETS:
            known = {_identity(item) for item in present}
            return present + [item for item in patch if _identity(item) not in known]
        return patch
    if any(item.get(_DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if item.get(_DIRECTIVE) != "replace"]
    key = _merge_key(field, [*patch, *present])
    if key is None:
        return [_merge_objects({}, item) for item in patch]
    return _merge_by_key(field, key, present, patch)


def _merge_by_key(field: str, key: str, present: list[Any], patch: list[Any]) -> list[Any]:
    places: dict[Any, list[int]] = {}
    for place, old in enumerate(present):
        places.setdefault(_identity(old.get(key)), []).append(place)
    gone: set[int] = set()
    for item in patch:
        if key not in item:
            raise bad_request(f"the patch's {field} has an item without its merge key {key}")
        identity = _identity(item[key])
        found = places.get(identity, [])
        if item.get(_DIRECTIVE) == "delete":
            gone.update(places.pop(identity, ()))
        elif found:
            present[found[0]] = _merge_objects(present[found[0]], item)
        else:
            places[identity] = [len(present)]
            present.append(_merge_objects({}, item))
    return [item for place, item in enumerate(present) if place not in gone]


def _identity(value: Any) -> Any:
    """A hashable stand-in for a value."""
    return orjson.dumps(value) if isinstance(value, dict | list) else value


def _ordered(field: str, items: list[Any], order: list[Any]) -> list[Any]:
    """Items named in `order` in that order; others stay behind the item they followed."""
    key = _merge_key(field, [item for item in items if isinstance(item, dict)])

    def identity(item: Any) -> Any:
        return _identity(item.get(key) if isinstance(item, dict) and key else item)

    ranks = {identity(item): rank for rank, item in enumerate(order)}
    placed, last = [], -1.0
    for item in items:
        last = ranks.get(identity(item), last)
        placed.append((last, identity(item) not in ranks, item))
    return [item for _, _, item in sorted(placed, key=lambda each: each[:2])]
