"""What most rules are made of: names, bounds, choices, and one of several fields."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any

from trainyard.schema.object_names import is_dns_subdomain, is_plain_label, is_qualified_name
from trainyard.schema.problems import REQUIRED, Path, Problem, error, suggest

Object = Mapping[str, Any]

MOST_INT32 = 2**31 - 1
MOST_PORT = 65535
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?\Z")
_PORT_NAME = re.compile(r"(?=[-0-9]*[a-z])(?!-)(?!.*--)[-a-z0-9]{1,15}(?<!-)\Z")
_VARIABLE = re.compile(r"[ -<>-~]+\Z")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}\Z")
_SHOWN = 63


def shown(text: object) -> str:
    """A value as it stands in a message."""
    return f"'{str(text)[:_SHOWN]}'"


def bounds(obj: Object, path: Path, field: str, least: int, most: int) -> Iterator[Problem]:
    """A number that is there must be in a range."""
    value = obj.get(field)
    if value is not None and not least <= value <= most:
        yield error((*path, field), f"must be between {least} and {most}, is {value}")


def required(obj: Object, path: Path, *fields: str) -> Iterator[Problem]:
    """Texts and lists that may not be absent or empty."""
    for field in fields:
        if not obj.get(field):
            yield error((*path, field), REQUIRED)


def choice(obj: Object, path: Path, field: str, allowed: Collection[str]) -> Iterator[Problem]:
    """A text that is there, and not empty, must be one of several."""
    value = obj.get(field)
    if value and value not in allowed:
        text = f"must be one of {', '.join(allowed)}, not {shown(value)}"
        yield error((*path, field), text, suggest(value, tuple(allowed)))


def at_most_one(obj: Object, path: Path, fields: Iterable[str], what: str) -> Iterator[Problem]:
    """No two of several fields that exclude each other."""
    given = [field for field in fields if obj.get(field) is not None]
    for field in given[1:]:
        yield error((*path, field), f"there is '{given[0]}' already; give one {what}")


def unique(keys: Iterable[Hashable], path: Path, field: str, what: str) -> Iterator[Problem]:
    """No two entries of a list alike; empty keys do not count. `field`: what holds the key."""
    seen: set[Hashable] = set()
    for index, key in enumerate(keys):
        if key and key in seen:
            here = (*path, index, field) if field else (*path, index)
            yield error(here, f"a second {what} {shown(key)}")
        seen.add(key)


def label_name(value: str, path: Path, what: str) -> Iterator[Problem]:
    """A name of an RFC 1123 label: container, volume, host."""
    if not is_plain_label(value):
        text = f"{shown(value)} is no {what}; use lower-case letters, digits and '-'"
        yield error(path, text)


def object_name(value: str, path: Path, what: str) -> Iterator[Problem]:
    """A name that another object may have."""
    if not is_dns_subdomain(value):
        text = f"{shown(value)} is no {what}; use lower-case letters, digits, '-' and '.'"
        yield error(path, text)


def qualified(value: str, path: Path) -> Iterator[Problem]:
    """A label's key, `name` or `prefix/name`."""
    if not is_qualified_name(value):
        yield error(path, f"{shown(value)} is not a qualified name such as app or example.com/app")


def label_value(value: str, path: Path) -> Iterator[Problem]:
    """At most 63 letters, digits, '-', '_' and '.'."""
    if not _LABEL_VALUE.match(value):
        yield error(path, f"{shown(value)} is not a label value")


def labels(value: Object, path: Path) -> Iterator[Problem]:
    """A mapping of labels."""
    for key, each in value.items():
        yield from qualified(key, path)
        yield from label_value(each, (*path, key))


def port_number(value: int, path: Path) -> Iterator[Problem]:
    """A port number of TCP or UDP."""
    if not 1 <= value <= MOST_PORT:
        yield error(path, f"must be between 1 and {MOST_PORT}, is {value}")


def port_name(value: str, path: Path) -> Iterator[Problem]:
    """A service name of RFC 6335."""
    if not _PORT_NAME.match(value):
        text = "use at most 15 lower-case letters, digits and '-', a letter among them"
        yield error(path, f"{shown(value)} is not the name of a port; {text}")


def port(value: int | str, path: Path) -> Iterator[Problem]:
    """A number, or the name of a container's port."""
    yield from port_number(value, path) if isinstance(value, int) else port_name(value, path)


def variable_name(value: str, path: Path) -> Iterator[Problem]:
    """The name of an environment variable, or what it begins with."""
    if not _VARIABLE.match(value):
        text = "use printable ASCII characters without '='"
        yield error(path, f"{shown(value)} cannot be the name of a variable; {text}")


def data_key(value: str, path: Path) -> Iterator[Problem]:
    """A key of a ConfigMap or Secret, which is a file's name in the volume made of it."""
    if not _KEY.match(value) or value == "." or value.startswith(".."):
        text = "a key has letters, digits, '-', '_' and '.', and does not begin with '..'"
        yield error(path, text)


def address(value: str, path: Path) -> Iterator[Problem]:
    """An IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        yield error(path, f"{shown(value)} is not an IP address")


def mode(obj: Object, path: Path, field: str) -> Iterator[Problem]:
    """The mode of a file."""
    value = obj.get(field)
    if value is not None and not 0 <= value <= 0o777:
        yield error((*path, field), f"must be between 0 and 0777 (octal), is {value} (decimal)")


def without_parent_steps(text: str, path: Path) -> Iterator[Problem]:
    """A path without '..'."""
    if ".." in text.split("/"):
        yield error(path, "must not contain '..'")
    if "\0" in text:
        yield error(path, "must not hold a null character")


def relative_path(text: str, path: Path) -> Iterator[Problem]:
    """A relative path without '..'."""
    if text.startswith("/"):
        yield error(path, "must be a relative path")
    yield from without_parent_steps(text, path)


def file_path(text: str, path: Path) -> Iterator[Problem]:
    """A relative path of a file in a volume that Kubernetes writes."""
    yield from relative_path(text, path)
    if text.startswith("..") and not text.startswith("../") and text != "..":
        yield error(path, "must not start with '..'")
