"""Changes of values and texts of which each may be the one that nobody has thought of."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

Value = Any
Path = tuple[str | int, ...]

SCALARS: Sequence[Value] = (
    *(None, True, False, 0, 1, -1, 3, 80, 65536, 99999999, 2**31, -(2**31), 2**53, 2**63 - 1),
    *(2**63, 2**64 - 1, -(2**63), 0.0, -0.5, 1.5, 1e308, -1e-300),
    *("", " ", "a", "x", "true", "null", "0", "-1", "1e9", "9" * 30, "1Gi", "-1Gi", "1e999Gi"),
    *("50%", "500m", "1.5.5", "nan", "Infinity", "10.0.0.1", "::1", "None", "999.1.1.1"),
    *("..", "../../x", "/", "/etc/passwd", "a/b", "a" * 64, "a" * 300, "A B", "ä", "\u0000"),
    *("\n", "\u202e", "\U0001f600", "$(A)", "$(A", "$$(A)", "%s", "{}", "*", "-", ".", "a.b/c"),
    *("2026-01-01T00:00:00Z", "0000-00-00", "9999-12-31T23:59:60Z", "5m", "-5m", "1d" * 50),
    *("default", "Always", "OnFailure", "Running", "Succeeded", "kube-system", "nvidia.com/gpu"),
)
KEYS: Sequence[str] = (
    *("", " ", "name", "namespace", "uid", "spec", "status", "metadata", "kind", "$patch", "$ref"),
    *("$retainKeys", "$setElementOrder/env", "$deleteFromPrimitiveList/finalizers", "a.b/c", "~1"),
    *("ownerReferences", "finalizers", "labels", "annotations", "managedFields", "generateName"),
    *("deletionTimestamp", "resourceVersion", "generation", "creationTimestamp", "selfLink"),
    *("x" * 300, "ä", "\u0000", "apiVersion", "items", "clusterIP", "ports", "containers"),
)


def scalar(rng: random.Random) -> Value:
    return rng.choice(SCALARS)


def strange(rng: random.Random) -> Value:
    """A value of any shape."""
    kind = rng.randrange(8)
    if kind < 4:
        return scalar(rng)
    if kind == 4:
        return [scalar(rng) for _ in range(rng.randrange(4))]
    if kind == 5:
        return {rng.choice(KEYS): scalar(rng) for _ in range(rng.randrange(4))}
    if kind == 6:
        return [{rng.choice(KEYS): scalar(rng)}]
    return nested(scalar(rng), rng.choice((3, 30, 98, 150, 300)), rng.random() < 0.5)


def nested(value: Value, depth: int, in_lists: bool) -> Value:
    for _ in range(depth):
        value = [value] if in_lists else {"a": value}
    return value


def paths(value: Value) -> list[Path]:
    """Where everything in a value is; the value itself is at ()."""
    found: list[Path] = []
    level: list[tuple[Path, Value]] = [((), value)]
    while level:
        path, each = level.pop()
        found.append(path)
        if isinstance(each, dict):
            level += [((*path, key), below) for key, below in each.items()]
        elif isinstance(each, list):
            level += [((*path, index), below) for index, below in enumerate(each)]
    return found


def at(value: Value, path: Path) -> Value:
    for part in path:
        value = value[part]
    return value


def put(value: Value, path: Path, new: Value) -> Value:
    """`value` (changed in place) with something else at `path`."""
    if not path:
        return new
    at(value, path[:-1])[path[-1]] = new
    return value


def mutated(value: Value, rng: random.Random, most: int = 4) -> Value:
    """A value with a few changes."""
    value = deepcopy(value)
    for _ in range(rng.randint(1, most)):
        value = rng.choice(_CHANGES)(value, rng)
    return value


def _place(value: Value, rng: random.Random) -> Path:
    return rng.choice(paths(value))


def _replace(value: Value, rng: random.Random) -> Value:
    return put(value, _place(value, rng), strange(rng))


def _replace_scalar(value: Value, rng: random.Random) -> Value:
    leaves = [path for path in paths(value) if not isinstance(at(value, path), dict | list)]
    return put(value, rng.choice(leaves), scalar(rng)) if leaves else scalar(rng)


def _delete(value: Value, rng: random.Random) -> Value:
    path = _place(value, rng)
    if path:
        del at(value, path[:-1])[path[-1]]
    return value


def _insert(value: Value, rng: random.Random) -> Value:
    found = at(value, _place(value, rng))
    if isinstance(found, dict):
        found[rng.choice(KEYS)] = strange(rng)
    elif isinstance(found, list):
        found.insert(rng.randint(0, len(found)), strange(rng))
    return value


def _repeat(value: Value, rng: random.Random) -> Value:
    lists = [path for path in paths(value) if isinstance(at(value, path), list)]
    if lists:
        found = at(value, rng.choice(lists))
        found.extend(deepcopy(found[:3]) * rng.choice((1, 1, 2, 40)))
    return value


def _rename(value: Value, rng: random.Random) -> Value:
    path = _place(value, rng)
    if path and isinstance(path[-1], str):
        parent = at(value, path[:-1])
        key = rng.choice((rng.choice(KEYS), path[-1] + "s", path[-1][:-1], path[-1].upper()))
        parent[key] = parent.pop(path[-1])
    return value


def _wrap(value: Value, rng: random.Random) -> Value:
    path = _place(value, rng)
    found = at(value, path)
    return put(value, path, rng.choice(([found], {"a": found}, {"0": found}, str(found)[:50])))


def _unwrap(value: Value, rng: random.Random) -> Value:
    path = _place(value, rng)
    found = at(value, path)
    below = list(found.values()) if isinstance(found, dict) else found
    return put(value, path, rng.choice(below)) if below and isinstance(below, list) else value


def _graft(value: Value, rng: random.Random) -> Value:
    return put(value, _place(value, rng), deepcopy(at(value, _place(value, rng))))


def _trouble(value: Value, rng: random.Random) -> Value:
    """Change what every object has."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if isinstance(metadata, dict):
        metadata[rng.choice(KEYS)] = strange(rng)
    return value


_CHANGES: Sequence[Callable[[Value, random.Random], Value]] = (
    *(_replace, _replace, _replace_scalar, _replace_scalar, _replace_scalar, _delete, _delete),
    *(_insert, _repeat, _rename, _wrap, _unwrap, _graft, _trouble),
)

_MARKS = (
    *(b"\x00", b"\xff", b"\r\n", b"\n", b" ", b":", b"- ", b"{", b"[", b'"', b"'", b"&a ", b"*a"),
    *(b"<<: ", b"---\n", b"%", b"!!binary ", b"!!python/object:os.system ", b"|\n", b"\t", b"#"),
    *(b"\xef\xbb\xbf", b"\xed\xa0\x80", b"a" * 5000, b"? ", b"@", b"`", b"...\n", b"9" * 40),
)


def mutated_bytes(data: bytes, rng: random.Random, most: int = 4) -> bytes:
    """A text with a few changes of its bytes and lines."""
    for _ in range(rng.randint(1, most)):
        start = rng.randint(0, len(data))
        end = min(len(data), start + rng.choice((0, 1, 1, 2, 10, 100)))
        kind = rng.randrange(7)
        if kind == 0:
            data = data[:start] + data[end:]
        elif kind == 1:
            data = data[:start] + rng.choice(_MARKS) + data[start:]
        elif kind == 2:
            data = data[:start] + rng.choice(_MARKS) + data[end:]
        elif kind == 3:
            data = data[:start] + data[start:end] * rng.choice((2, 3, 50)) + data[end:]
        elif kind == 4:
            data = data[:start] + bytes([rng.randrange(256)]) + data[start + 1 :]
        elif kind == 5:
            lines = data.split(b"\n")
            line = lines.pop(rng.randrange(len(lines)))
            lines.insert(rng.randint(0, len(lines)), b" " * rng.randrange(4) + line)
            data = b"\n".join(lines)
        elif rng.random() < 0.3:
            data = data[:start]
    return data
