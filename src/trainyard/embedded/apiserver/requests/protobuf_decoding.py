"""Reading the protobuf bodies that kubectl ≥ 1.32 sends for a few built-in kinds.

kubectl's typed clients (`create namespace`, `create configmap`, `auth can-i` …) post protobuf and
have no fallback. Numbers of fields never change, so tables of them (from the `generated.proto`
files of k8s.io/api and apimachinery) are enough: those of the protocol here, those of a resource
in its file. Answers are always JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import cache
from typing import Any

from trainyard.embedded.api_errors import bad_request, unsupported_media_type
from trainyard.embedded.apiserver.requests.request_limits import MAX_VALUES, check_shape
from trainyard.embedded.resources.resource import META, Messages, Object, Served
from trainyard.schema.times import from_unix

_MAGIC = b"k8s\0"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_KINDS: Messages = {
    "DeleteOptions": (
        "1 gracePeriodSeconds int?, 2 preconditions Preconditions, "
        "3 orphanDependents bool?, 4 propagationPolicy str, 5 dryRun str[]"
    ),
    "Eviction": META + "2 deleteOptions DeleteOptions",
    "SelfSubjectAccessReview": META + "2 spec AccessReviewSpec",
    "SelfSubjectRulesReview": META + "2 spec RulesReviewSpec",
    "SelfSubjectReview": META,
    "TokenReview": META + "2 spec TokenReviewSpec",
}
"""What may be sent besides objects of a resource."""
_MESSAGES: Messages = {
    **_KINDS,
    "Unknown": "1 type TypeMeta, 2 raw raw",
    "TypeMeta": "1 apiVersion str, 2 kind str",
    "ObjectMeta": (
        "1 name str, 2 generateName str, 3 namespace str, 5 uid str, "
        "6 resourceVersion str, 7 generation int, 8 creationTimestamp Time, "
        "9 deletionTimestamp Time, 10 deletionGracePeriodSeconds int?, 11 labels str{}, "
        "12 annotations str{}, 13 ownerReferences OwnerReference[], 14 finalizers str[]"
    ),
    "OwnerReference": (
        "1 kind str, 3 name str, 4 uid str, 5 apiVersion str, 6 controller bool?, "
        "7 blockOwnerDeletion bool?"
    ),
    "Quantity": "1 text str",
    "IntOrString": "1 type int, 2 number int, 3 text str",
    "Preconditions": "1 uid str, 2 resourceVersion str",
    "AccessReviewSpec": (
        "1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes NonResourceAttributes"
    ),
    "ResourceAttributes": (
        "1 namespace str, 2 verb str, 3 group str, 4 version str, 5 resource str, "
        "6 subresource str, 7 name str"
    ),
    "NonResourceAttributes": "1 path str, 2 verb str",
    "RulesReviewSpec": "1 namespace str",
    "TokenReviewSpec": "1 token str, 2 audiences str[]",
    "Time": "1 seconds int, 2 nanos int",
}


def decode(body: bytes, served: Served | None = None) -> Object:
    """The object in a protobuf body; refused with 415 for a kind of no known shape.

    `served` is the resource that it is sent to.
    """
    messages = {**_MESSAGES, **served.messages} if served is not None else _MESSAGES
    if not body.startswith(_MAGIC):
        raise bad_request("the body of the request is not Kubernetes protobuf")
    try:
        envelope = _message("Unknown", body[len(_MAGIC) :], messages)
        kind = envelope.get("type", {}).get("kind", "")
        if kind not in _KINDS and (served is None or kind not in served.messages):
            raise unsupported_media_type(f"protobuf of a {kind or 'nameless kind'}", ["JSON"])
        value = {**envelope["type"], **_message(kind, envelope.get("raw", b""), messages)}
    except (IndexError, UnicodeDecodeError, KeyError, ValueError, OverflowError) as error:
        raise bad_request(f"the body of the request is not protobuf: {error}") from error
    check_shape(value)
    return value


def _message(name: str, data: bytes, messages: Messages) -> Object:
    fields = _fields(messages[name])
    result: Object = {}
    for count, (number, raw) in enumerate(_wire_fields(data)):
        if count > MAX_VALUES:
            raise ValueError(f"a message of more than {MAX_VALUES} fields")
        if number not in fields:
            continue
        key, type_ = fields[number]
        if type_.endswith("[]"):
            result.setdefault(key, []).append(_value(type_[:-2], raw, messages))
        elif type_.endswith("{}"):
            entry = dict(_wire_fields(_bytes(raw)))
            value = _value(type_[:-2], entry.get(2, b""), messages)
            result.setdefault(key, {})[_bytes(entry.get(1, b"")).decode()] = value
        elif key == "-":
            result |= _message(type_, _bytes(raw), messages)
        else:
            value = _value(type_.rstrip("?"), raw, messages)
            if type_.endswith("?") or value not in (None, "", 0, False, {}):
                result[key] = value
    return result


@cache
def _fields(text: str) -> dict[int, tuple[str, str]]:
    parts = (part.split() for part in text.split(",") if part.strip())
    return {int(number): (key, type_) for number, key, type_ in parts}


def _value(type_: str, raw: int | bytes, messages: Messages) -> Any:
    if type_ == "int":
        number = int(raw)
        return number - (1 << 64) if number >= 1 << 63 else number
    if type_ == "bool":
        return bool(raw)
    data = _bytes(raw)
    if type_ == "raw":
        return data
    if type_ == "str":
        return data.decode()
    if type_ == "bytes":
        return base64.b64encode(data).decode()
    value = _message(type_, data, messages)
    if type_ == "Quantity":
        return value.get("text", "")
    if type_ == "IntOrString":
        return value.get("text", "") if value.get("type") else value.get("number", 0)
    if type_ == "Time":
        seconds = value.get("seconds")
        return seconds and from_unix(seconds)
    return value


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise ValueError("a number where bytes are expected")
    return raw


def _wire_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == _BYTES:
            size, position = _varint(data, position)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        if position + size > len(data):
            raise ValueError("it ends in the middle of a field")
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
