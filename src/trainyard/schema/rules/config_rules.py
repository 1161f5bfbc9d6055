"""ConfigMaps and Secrets."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping

from trainyard.schema.problems import REQUIRED, Path, Problem, error
from trainyard.schema.rules.common_rules import Object, data_key

MOST_BYTES = 1 << 20
"""The limit of all values together."""
_TLS = ("tls.crt", "tls.key")
_NEEDED = {
    "kubernetes.io/tls": _TLS,
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_JSON = (".dockercfg", ".dockerconfigjson")
_BASIC, _BASIC_KEYS = "kubernetes.io/basic-auth", ("username", "password")
_TOKEN, _ACCOUNT = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name"


def config_map(obj: Object) -> Iterator[Problem]:
    """Problems of a ConfigMap."""
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    yield from keys(obj, "data", "binaryData")
    for key in data.keys() & binary.keys():
        yield error(("binaryData", key), "is a key of data as well")
    size = sum(len(value.encode()) for value in data.values()) + _size(binary)
    yield from _bounded(size, ("data",))


def secret(obj: Object) -> Iterator[Problem]:
    """Problems of a Secret, whose `stringData` may not have been put into `data` yet."""
    data, plain = obj.get("data") or {}, obj.get("stringData") or {}
    yield from keys(obj, "data", "stringData")
    rest = {key: value for key, value in data.items() if key not in plain}
    size = _size(rest) + sum(len(value.encode()) for value in plain.values())
    yield from _bounded(size, ("data",))
    kind, given = obj.get("type") or "", data.keys() | plain.keys()
    for key in _NEEDED.get(kind, ()):
        if key not in given:
            yield error(("data", key), REQUIRED)
        elif key in _JSON and not _is_json(data, plain, key):
            yield error(("data", key), "is not JSON")
    if kind == _BASIC and not given & set(_BASIC_KEYS):
        yield error(("data", _BASIC_KEYS[0]), REQUIRED)
    if kind == _TOKEN and not (obj["metadata"].get("annotations") or {}).get(_ACCOUNT):
        yield error(("metadata", "annotations", _ACCOUNT), REQUIRED)


def keys(obj: Object, *fields: str) -> Iterator[Problem]:
    """Keys that cannot be names of files in the volumes made of the object."""
    for field in fields:
        for key in obj.get(field) or {}:
            yield from data_key(key, (field, key[:253]))


def frozen(new: Object, old: Object, fields: tuple[str, ...]) -> Iterator[Problem]:
    """What may no longer change of one that was made immutable."""
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield error(("immutable",), "must stay true")
    for field in fields:
        if (new.get(field) or {}) != (old.get(field) or {}):
            yield error((field,), "must not change, because `immutable` is set")


def _bounded(size: int, path: Path) -> Iterator[Problem]:
    if size > MOST_BYTES:
        yield error(path, f"has {size} bytes; there may be at most {MOST_BYTES}")


def _size(values: Mapping[str, str]) -> int:
    return sum(len(value) * 3 // 4 - value[-2:].count("=") for value in values.values())


def _is_json(data: Mapping[str, str], plain: Mapping[str, str], key: str) -> bool:
    try:
        json.loads(plain[key] if key in plain else base64.b64decode(data[key]))
    except ValueError:
        return False
    return True
