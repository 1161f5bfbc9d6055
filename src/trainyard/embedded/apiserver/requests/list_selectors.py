"""Label and field selectors of lists and watches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from trainyard.embedded.api_errors import bad_request
from trainyard.embedded.apiserver.requests.request_limits import (
    MAX_REQUIREMENTS,
    MAX_SELECTOR_CHARACTERS,
    shortened,
)
from trainyard.embedded.resources.resource import Object, Served

Predicate = Callable[[Object], bool]

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)$")
# No two neighbouring parts match the same letters: what does not match costs one pass.
_EQUAL = re.compile(r"^(?P<key>[^=!]+)(?P<operator>==|=|!=)(?P<value>[^=!]*)$")
_COMPARE = re.compile(r"^(?P<key>[^<>]+)(?P<operator>[<>])\s*(?P<value>[0-9]{1,18})$")
# The path ends at the first operator; in the value a backslash goes before what would end it.
_FIELD = re.compile(r"^(?P<path>.*?)(?P<operator>!=|==|=)(?P<value>(?:[^\\,=]|\\[\\,=])*)$", re.S)
_FIELD_TERMS = re.compile(r"(?:[^\\,]|\\.|\\$)+", re.S)
_KEY = re.compile(r"^([A-Za-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
_VALUE = re.compile(r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$")

_CACHED_CHARACTERS = 500
"""Selectors up to this length are cached parsed, since the same lists are repeated."""
_NAME = "metadata.name"
_EVERYWHERE = frozenset({_NAME, "metadata.namespace"})


def label_predicate(text: str) -> Predicate | None:
    """A predicate for a labelSelector; None selects everything."""
    requirements = _requirements(text)
    if not requirements:
        return None

    def matches(obj: Object) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(requirement(labels) for requirement in requirements)

    return matches


def field_predicate(text: str, served: Served) -> Predicate | None:
    """A predicate for a fieldSelector; None selects everything."""
    terms = [
        (_selectable(path, served), equal, value)
        for path, equal, value in _field_terms(text)
        if path or value  # a term that says nothing asks for nothing
    ]
    if not terms:
        return None

    return lambda obj: all(
        (_field(obj, path, served) == value) is equal for path, equal, value in terms
    )


def selected_name(text: str) -> str | None:
    """The name that a fieldSelector asks for, or None."""
    names = (value for path, equal, value in _field_terms(text) if path == _NAME and equal)
    return next(names, None)


def both(first: Predicate | None, second: Predicate | None) -> Predicate | None:
    """Selects what both predicates select."""
    if first is None or second is None:
        return first or second
    return lambda obj: first(obj) and second(obj)


def _requirements(text: str) -> tuple[Callable[[Mapping[str, str]], bool], ...]:
    return (_cached_requirements if len(text) < _CACHED_CHARACTERS else _read_requirements)(text)


def _read_requirements(text: str) -> tuple[Callable[[Mapping[str, str]], bool], ...]:
    return tuple(_requirement(part) for part in _split(text))


_cached_requirements = lru_cache(maxsize=256)(_read_requirements)


def _requirement(part: str) -> Callable[[Mapping[str, str]], bool]:
    if found := _SET.match(part):
        key = _key(found["key"])
        values = frozenset(_value(value.strip()) for value in found["values"].split(","))
        if found["operator"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: key not in labels or labels[key] not in values
    if found := _EQUAL.match(part):
        key, value = _key(found["key"].strip()), _value(found["value"].strip())
        if found["operator"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _COMPARE.match(part):
        key, bound, more = _key(found["key"].strip()), int(found["value"]), found["operator"] == ">"
        return lambda labels: _compares(labels.get(key), bound, more)
    if part.startswith("!"):
        key = _key(part[1:].strip())
        return lambda labels: key not in labels
    key = _key(part)
    return lambda labels: key in labels


def _compares(text: str | None, bound: int, more: bool) -> bool:
    try:
        number = int(text or "")
    except ValueError:  # also from more digits than Python reads
        return False
    return number > bound if more else number < bound


def _key(text: str) -> str:
    prefix, _, name = text.rpartition("/")
    if not _KEY.match(text) or len(name) > 63 or len(prefix) > 253:
        raise bad_request(f"unable to parse requirement: {shortened(text)!r} is not a label key")
    return text


def _value(text: str) -> str:
    if not _VALUE.match(text) or len(text) > 63:
        raise bad_request(f"unable to parse requirement: {shortened(text)!r} is not a label value")
    return text


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(_check_length(text)):
        if letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    found = [part.strip() for part in parts] if text.strip() else []
    if "" in found:
        raise bad_request(f"unable to parse requirement: {shortened(text)!r} has an empty one")
    return _check_count(found)


def _check_length(text: str) -> str:
    if len(text) > MAX_SELECTOR_CHARACTERS:
        raise bad_request(f"a selector has at most {MAX_SELECTOR_CHARACTERS} characters")
    return text


def _check_count(parts: list[str]) -> list[str]:
    if len(parts) > MAX_REQUIREMENTS:
        raise bad_request(f"a selector has at most {MAX_REQUIREMENTS} requirements")
    return parts


def _field_terms(text: str) -> list[tuple[str, bool, str]]:
    """(path, whether it has to equal the value, value) of each term."""
    terms = _FIELD_TERMS.findall(_check_length(text))
    found = [(term, _FIELD.match(term)) for term in _check_count(terms)]
    for term, match in found:
        if match is None:
            message = (
                f"invalid field selector {shortened(term)!r}: expected path=value or path!=value"
            )
            raise bad_request(message)
    return [
        (match["path"], match["operator"] != "!=", re.sub(r"\\(.)", r"\1", match["value"]))
        for _, match in found
        if match is not None
    ]


def _selectable(path: str, served: Served) -> tuple[str, ...]:
    if path not in _EVERYWHERE and path not in served.selectable:
        raise bad_request(
            f'Unable to find "{served.name}" by a field selector: '
            f"field label not supported: {shortened(path)}"
        )
    return tuple(path.split("."))


def _field(obj: Object, path: tuple[str, ...], served: Served) -> str:
    value = served.selected(obj, path)
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
